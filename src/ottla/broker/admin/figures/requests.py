"""Requests, their latencies and bytes, connections and flushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.net.listener import Listener
from ottla.broker.net.request_meter import RequestMeter
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.router import Router
from ottla.broker.upkeep.flusher import Flusher
from ottla.observe.metrics import Family, counter, gauge, histogram
from ottla.protocol.api import ApiKey


def request_figures(
    router: Router,
    meter: RequestMeter,
    fetch: FetchHandler,
    partitions: PartitionTable,
    listeners: Sequence[Listener],
    flusher: Flusher,
) -> Iterator[Family]:
    yield counter(
        "kafka_network_requestmetrics_requests_total",
        "Requests, by API.",
        {(_shown(ApiKey.PRODUCE),): router.produce_count, (_shown(ApiKey.FETCH),): router.fetch_count}
        | {(_shown(api),): count for api, count in meter.counts.items()},
        ("request",),
    )
    yield histogram(
        "kafka_network_requestmetrics_totaltimems",
        "Time from a request's start until its answer is complete; of Produce and Fetch one in 32 is timed.",
        {(_shown(api),): times for api, times in meter.latencies.items()},
        ("request",),
    )
    yield counter(
        "kafka_server_brokertopicmetrics_bytesout_total", "Bytes of batches in answers to Fetch.", fetch.sent_bytes
    )
    yield gauge(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections, by the listener's port.",
        {(str(listener.address[1]),): listener.connections_count for listener in listeners},
        ("listener",),
    )
    yield gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Fetches that wait for records, and produced batches that wait for their acknowledgement.",
        {
            (_shown(ApiKey.FETCH),): fetch.parked.fetches_count,
            (_shown(ApiKey.PRODUCE),): sum(each.waiting_produces_count for each in partitions),
        },
        ("delayedoperation",),
    )
    yield histogram("kafka_log_logflushstats_logflushrateandtimems", "Time that the disk took to sync.", flusher.times)
    yield gauge(
        "ottla_flush_stuck",
        "1 while a flush is stuck, and until a sync of the disk is fast again.",
        int(flusher.is_stuck),
    )


def _shown(api: ApiKey) -> str:
    """As Apache Kafka names it: `OffsetCommit`."""
    return api.name.title().replace("_", "")
