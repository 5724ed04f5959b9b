"""A client's time-outs and memory limits.  Names and defaults follow Kafka's clients."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.limits import MIB


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """All times in ms.

    connect_timeout_ms       a TCP connection, its TLS handshake, and each request that opens it
    request_timeout_ms       one request, from sending it to its whole response
    call_timeout_ms          a call with all its retries, when the caller names no other time
    unknown_topic_wait_ms    how long an unknown topic is retried: it may just have been created
    connections_max_idle_ms  an unused connection is not trusted for longer; brokers close theirs after 10 minutes
    response_bytes_max       a larger response is refused before memory is allocated for it
    security                 TLS and SASL of every connection; the default is neither
    """

    client_id: str = "ottla"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    call_timeout_ms: int = 60_000
    unknown_topic_wait_ms: int = 3_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    response_bytes_max: int = 256 * MIB
    security: ClientSecurity = PLAINTEXT
