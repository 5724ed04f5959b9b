"""What the target has beyond the last progress, on brokers in memory."""

from __future__ import annotations

from ottla.mirror.journal import Counts, SourcePartition
from ottla.mirror.offset_map import OffsetMap, Run
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import PartitionCopy
from ottla.mirror.plan import NO_ID
from ottla.mirror.prover import Prover
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from tests.unit.client.fake_cluster import FakeCluster

HERE = TopicPartition("t", 0)


def cluster_with(first: int, *numbers: int) -> FakeCluster:
    """Its records are `numbers`, at offsets from 0 on; what is missing between `first` and the last is a gap."""
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    builder = BatchBuilder()
    for number in numbers:
        builder.append(1000, b"%d" % number, b"value", offset_delta=number - first)
    cluster.partitions[HERE].append(builder.build())
    return cluster


def cluster_of(*numbers: int) -> FakeCluster:
    """Its records are `numbers`, without a gap between their offsets."""
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    builder = BatchBuilder()
    for number in numbers:
        builder.append(1000, b"%d" % number, b"value")
    cluster.partitions[HERE].append(builder.build())
    return cluster


def proven(
    source: FakeCluster, target: FakeCluster, copied: int = 0, notes: list[str] | None = None
) -> tuple[PartitionCopy, object]:
    """A copy of which so much is stored as progress."""
    copy = PartitionCopy(SourcePartition("c", NO_ID, "t", 0), NO_ID, OffsetMap(copied, copied), Counts())
    with source.client() as here, target.client() as there:
        note = (notes if notes is not None else []).append
        (error,) = Prover(here, there, MirrorOptions(), note).prove([copy]).values()
    return copy, error


def test_what_compaction_took_of_the_target_does_not_make_the_rest_somebody_elses() -> None:
    source, target = cluster_with(0, *range(20)), cluster_with(0, 0, *range(4, 10))
    copy, error = proven(source, target)
    assert error is None
    assert copy.offsets.runs == [Run(0, 0, 1), Run(4, 4, 6)]
    assert copy.next_offset == 10


def test_gap_of_a_target_that_was_not_compacted_is_copied_again_and_announced() -> None:
    """The target's log has no offset to spare for records 3 and 4: they were never written."""
    source, target = cluster_with(0, *range(20)), cluster_of(0, 1, 2, 5, 6, 7)
    notes: list[str] = []
    copy, error = proven(source, target, notes=notes)
    assert error is None
    assert copy.offsets.runs == [Run(0, 0, 3)]
    assert (copy.next_offset, copy.offsets.target_end) == (3, 6)
    assert (copy.counts.duplicate_records, copy.counts.foreign_records) == (3, 0)
    assert notes == [
        "t-0: the target lacks records of the source's offsets 3 to 4, and has later ones: all are copied again"
        " from 3 on, 3 records twice"
    ]


def test_markers_of_transactions_on_the_source_are_no_gap() -> None:
    """Offsets 5 and 6 of the source have no records: the copy has none, either."""
    source, target = cluster_with(0, *range(5), *range(7, 20)), cluster_of(*range(5), 7, 8)
    notes: list[str] = []
    copy, error = proven(source, target, notes=notes)
    assert (error, notes) == (None, [])
    assert copy.offsets.runs == [Run(0, 0, 5), Run(7, 5, 2)]


def test_what_retention_took_of_both_sides_is_no_gap() -> None:
    source, target = cluster_with(0, *range(20)), cluster_of(*range(10))
    for cluster in (source, target):
        cluster.partitions[HERE].start = 4
    notes: list[str] = []
    copy, error = proven(source, target, copied=2, notes=notes)
    assert (error, notes) == (None, [])
    assert copy.next_offset == 10


def test_what_another_mirror_copied_beside_this_one_is_counted_and_is_nobody_elses() -> None:
    """It was behind, and went on for a while."""
    source, target = cluster_with(0, *range(20)), cluster_with(0, *range(10))
    for numbers in ((10, 11), (8, 9, 10), (12,)):
        builder = BatchBuilder()
        for number in numbers:
            builder.append(1000, b"%d" % number, b"value")
        target.partitions[HERE].append(builder.build())
    copy, error = proven(source, target, copied=10)
    assert error is None
    assert copy.next_offset == 13
    assert (copy.counts.duplicate_records, copy.counts.foreign_records) == (3, 0)
    assert copy.counts.records == 3


def test_what_another_mirror_copied_ahead_of_this_one_is_nobody_elses_either() -> None:
    source, target = cluster_with(0, *range(20)), cluster_with(15, 15, 16, 17)
    builder = BatchBuilder()
    for number in range(5):
        builder.append(1000, b"%d" % number, b"value")
    target.partitions[HERE].append(builder.build())
    copy, error = proven(source, target)
    assert error is None
    assert copy.next_offset == 5
    assert (copy.counts.duplicate_records, copy.counts.foreign_records) == (3, 0)
    assert copy.counts.records == 5
