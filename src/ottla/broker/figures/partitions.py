"""Partitions, their ends and sizes, and the log directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.broker.partition_table import PartitionTable
from ottla.observe.metrics import Family, counter, gauge
from ottla.replication.replica import Role
from ottla.storage.directory.log_directory import LogDirectory

_PLACE = ("topic", "partition")


def partition_figures(partitions: PartitionTable, directory: LogDirectory) -> Iterator[Family]:
    served = {(each.topic_partition.topic, str(each.index)): each for each in partitions}
    refused_count = sum(1 for _ in partitions.refusals())
    appended = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for (topic, _), each in served.items():
        sums = each.appended
        appended[0][topic,] += sums.records_count
        appended[1][topic,] += sums.size_bytes
    yield counter(
        "kafka_server_brokertopicmetrics_messagesin_total", "Records appended, by topic.", appended[0], ("topic",)
    )
    yield counter(
        "kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches appended, by topic.", appended[1], ("topic",)
    )
    yield gauge("kafka_server_replicamanager_partitioncount", "Partitions on this broker.", len(served) + refused_count)
    yield gauge(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this broker leads.",
        sum(1 for each in served.values() if each.role is Role.LEADER),
    )
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
