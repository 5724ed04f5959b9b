"""What listens at an address that `ottla serve` could not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.model.listener import address_text

if TYPE_CHECKING:
    from ottla.client.wire.transport import Dial

_WITHIN_MS: Final = 1_000
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def holder_of(host: str, port: int, dial: Dial | None = None) -> str:
    """A clause for a hint.  The request is one in plain text, which a listener with TLS or logins does not answer."""
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.errors import ClientError
    from ottla.client.wire.options import ClientOptions
    from ottla.client.wire.security.settings import PLAINTEXT
    from ottla.client.wire.transport import dial_tcp
    from ottla.model.errors import WireError

    options = ClientOptions(
        client_id="ottla-serve",
        connect_timeout_ms=_WITHIN_MS,
        request_timeout_ms=_WITHIN_MS,
        call_timeout_ms=_WITHIN_MS,
        security=PLAINTEXT,
    )
    address = address_text(_WILDCARDS.get(host, host), port)
    try:
        with Cluster(address, options, dial=dial or dial_tcp) as cluster:
            cluster.refresh_once([], cluster.retrying.deadline(_WITHIN_MS))
            found = cluster.info
    except (ClientError, WireError):
        return f"what listens at {address} does not answer as a Kafka broker does (without TLS and logins)"
    brokers = ", ".join(str(node_id) for node_id, each in found.brokers.items() if each.address.port == port)
    return f"a Kafka broker answers at {address}: cluster {found.cluster_id}, node id {brokers or 'unknown'}"
