"""Settings of other Kafka clients, and what they are called here: for the errors of callers who know those."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Never

_SECURITY: Final = "security={...}, with these names"

# By the name with underscores: Kafka's, librdkafka's and kafka-python's.
_NAMES: Final = {
    "bootstrap_servers": "the first argument, bootstrap",
    "metadata_broker_list": "the first argument, bootstrap",
    "group_id": "group",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "max_poll_records": "the max_messages of poll_many()",
    "consumer_timeout_ms": "the timeout_ms of poll()",
    "queued_max_messages_kbytes": "stream_buffer_bytes",
    "partition_assignment_strategy": "group_protocol; the group's assignors are range and uniform",
    "group_remote_assignor": "a setting of the group: `ottla config set --group`",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "compression_type": "compression",
    "compression_codec": "compression",
    "batch_size": "batch_bytes",
    "batch_num_messages": "batch_count_max",
    "buffer_memory": "buffer_bytes",
    "queue_buffering_max_kbytes": "buffer_bytes",
    "queue_buffering_max_messages": "buffer_bytes",
    "queue_buffering_max_ms": "linger_ms",
    "max_in_flight_requests_per_connection": "max_in_flight",
    "max_in_flight": "max_in_flight",
    "max_request_size": "max_request_bytes",
    "message_max_bytes": "max_request_bytes",
    "message_timeout_ms": "delivery_timeout_ms",
    "retries": "delivery_timeout_ms: retries are made until then",
    "message_send_max_retries": "delivery_timeout_ms: retries are made until then",
    "request_required_acks": "acks",
    "dr_cb": "the delivery that send() returns",
    "on_delivery": "the delivery that send() returns",
    "rebalance_cb": "the on_assign, on_revoke and on_lost of subscribe()",
    "default_offset": "auto_offset_reset",
    "stats_cb": "on_statistics",
    "interceptor_classes": "interceptors, of objects",
}
_SECURITY_PREFIXES: Final = ("security_", "ssl_", "sasl_")


def name_here(name: str, known: Collection[str]) -> str | None:
    """What a setting of another client is called here, in a sentence; None where there is no such setting."""
    plain = name.replace(".", "_")
    if plain in known:
        return plain
    if plain.startswith(_SECURITY_PREFIXES):
        return _SECURITY
    return _NAMES.get(plain)


def refuse_mapping(of: str, settings: Mapping[str, object], known: Collection[str]) -> Never:
    """Raises TypeError: the settings were given as a dict, as confluent-kafka has them."""
    places = {name: name_here(str(name), known) for name in settings}
    shown = "; ".join(f"{name}: {place or 'there is no such setting'}" for name, place in places.items())
    raise TypeError(
        f'{of} takes its settings as arguments, as in {of}("localhost:9092", ...), not as a dict'
        + (f": {shown}" if shown else "")
    )


def check_names(of: str, given: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError for an argument that is no setting of `of`."""
    for name in given:
        if name in known:
            continue
        place = name_here(name, known)
        hint = f"here it is {place}" if place else "its settings are " + ", ".join(sorted(known))
        raise TypeError(f"{of}() has no argument {name!r}: {hint}")
