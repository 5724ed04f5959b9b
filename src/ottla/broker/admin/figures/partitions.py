"""Partitions, their ends and sizes, and the log directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.observe.metrics import PAUSE, Family, Pause, counter, gauge
from ottla.replication.follower_progress import FollowerLag
from ottla.replication.replica import Role
from ottla.storage.directory.log_directory import LogDirectory

_TOPIC = ("topic",)
_PLACE = ("topic", "partition")
_PAUSE_AFTER = 200


def partition_figures(partitions: PartitionTable, directory: LogDirectory, now_ms: int) -> Iterator[Family | Pause]:
    """`now_ms`: by the monotonic clock."""
    served = {_place(each): each for each in partitions}
    refused_count = sum(1 for _ in partitions.refusals())
    records: Counter[tuple[str]] = Counter()
    sizes: Counter[tuple[str]] = Counter()
    replicated_bytes = 0
    for (topic, _), each in served.items():
        produced = each.produced
        records[topic,] += produced.records_count
        sizes[topic,] += produced.size_bytes
        replicated_bytes += each.appended.size_bytes - produced.size_bytes
    yield counter("kafka_server_brokertopicmetrics_messagesin_total", "Records taken as leader.", records, _TOPIC)
    yield counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches taken as leader.", sizes, _TOPIC)
    yield counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes taken from leaders.", replicated_bytes
    )
    led = [each for each in served.values() if each.role is Role.LEADER]
    yield gauge("kafka_server_replicamanager_partitioncount", "Partitions on this broker.", len(served) + refused_count)
    yield gauge(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this broker leads.",
        len(led),
    )
    yield from _replication_figures(led, now_ms)
    yield gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions of this broker that it cannot serve: their logs are damaged, or the directory is offline.",
        refused_count if directory.offline is None else len(served) + refused_count,
    )
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "1 when the log directory takes no more writes.",
        0 if directory.offline is None else 1,
    )
    space = directory.space
    yield gauge("ottla_disk_free_bytes", "Free bytes on the data directory's file system.", space.free_bytes)
    yield gauge("ottla_disk_reserve_bytes", "Bytes that are held in reserve beside them.", space.reserve_bytes)
    yield gauge("ottla_disk_low", "1 while `disk.low` or `disk.full` holds.", int(space.is_low))
    yield gauge("ottla_disk_full", "1 while records are refused since the disk is full.", int(space.is_full))
    yield gauge(
        "kafka_log_log_logstartoffset",
        "The first offset, inclusive.",
        {place: each.log_start_offset for place, each in served.items()},
        _PLACE,
    )
    yield gauge(
        "kafka_log_log_logendoffset",
        "The next offset to be assigned.",
        {place: each.log_end_offset for place, each in served.items()},
        _PLACE,
    )
    yield gauge(
        "kafka_log_log_size",
        "Bytes of the segments.",
        {place: each.size_bytes for place, each in served.items()},
        _PLACE,
    )


def _replication_figures(led: Sequence[Partition], now_ms: int) -> Iterator[Family | Pause]:
    """Of the partitions that this broker leads: their sum over all brokers is the cluster's."""
    replicated = [(each, len(each.node.origin)) for each in led if each.node is not None]
    yield gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here that lack a replica in sync.",
        sum(1 for each, replicas_count in replicated if each.in_sync_count < replicas_count),
    )
    yield gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here that refuse acks=all: fewer replicas are in sync than min.insync.replicas.",
        sum(1 for each, _ in replicated if not each.has_min_in_sync),
    )
    yield gauge(
        "kafka_cluster_partition_insyncreplicascount",
        "Replicas in sync of each partition led here that has several.",
        {_place(each): each.in_sync_count for each, replicas_count in replicated if replicas_count > 1},
        _PLACE,
    )
    lags: dict[tuple[str, ...], tuple[FollowerLag, int]] = {}
    for number, (each, replicas_count) in enumerate(replicated, 1):
        if replicas_count > 1:
            lags.update(((*_place(each), str(lag.node_id)), (lag, each.lag_bytes(lag))) for lag in each.lags(now_ms))
        if number % _PAUSE_AFTER == 0:
            # The bytes of one that lags are looked up in an index, which may have to be read from the disk.
            yield PAUSE
    labels = (*_PLACE, "follower")
    yield gauge(
        "ottla_follower_lag_records",
        "Records that a follower lacks, of the partitions led here.",
        {place: lag.lag_records for place, (lag, _) in lags.items()},
        labels,
    )
    yield gauge(
        "ottla_follower_lag_bytes",
        "The size of the batches that a follower lacks, of the partitions led here.",
        {place: lag_bytes for place, (_, lag_bytes) in lags.items()},
        labels,
    )
    yield gauge(
        "ottla_follower_lag_seconds",
        "How long ago a follower was caught up, of the partitions led here.",
        {place: lag.lag_ms / 1_000 for place, (lag, _) in lags.items()},
        labels,
    )


def _place(partition: Partition) -> tuple[str, str]:
    return partition.topic_partition.topic, str(partition.index)
