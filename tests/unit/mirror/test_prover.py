"""What the target has beyond the last progress, on brokers in memory."""

from __future__ import annotations

import pytest

from ottla.mirror.journal import Counts, SourcePartition
from ottla.mirror.offset_translation import OffsetTranslation, Run
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import PartitionCopy
from ottla.mirror.plan import NO_ID
from ottla.mirror.prover import ForeignRecords, Prover
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.record import Record
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
    copy = PartitionCopy(SourcePartition("c", NO_ID, "t", 0), NO_ID, OffsetTranslation(copied, copied), Counts())
    with source.client() as here, target.client() as there:
        note = (notes if notes is not None else []).append
        (error,) = Prover(here, there, MirrorOptions(), note).prove([copy]).values()
    return copy, error


def test_compaction_of_the_target_does_not_make_the_rest_foreign() -> None:
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


def cluster_with_a_marker(policy: str | None) -> FakeCluster:
    """Records 0, 1, 3 and 4 of the copy; another writer's marker is where record 2 would be."""
    cluster = cluster_of(0, 1)
    marker = build_batch([Record(0, 1000, b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=7, is_control=True)
    batch = BatchBuilder()
    for number in (3, 4):
        batch.append(1000, b"%d" % number, b"value")
    for each in (marker, batch.build()):
        cluster.partitions[HERE].append(each)
    if policy is not None:
        cluster.topic_configs["t"] = {"cleanup.policy": policy}
    return cluster


def test_marker_of_another_writer_does_not_hide_a_gap() -> None:
    source, target = cluster_with(0, *range(20)), cluster_with_a_marker("delete")
    notes: list[str] = []
    copy, error = proven(source, target, notes=notes)
    assert error is None
    assert copy.offsets.runs == [Run(0, 0, 2)]
    assert (copy.next_offset, copy.offsets.target_end) == (2, 5)
    assert (copy.counts.duplicate_records, copy.counts.foreign_records) == (2, 0)
    assert notes == [
        "t-0: the target lacks records of the source's offsets 2 to 2, and has later ones: all are copied again"
        " from 2 on, 2 records twice"
    ]


def test_hole_in_a_log_that_is_not_compacted_is_copied_again() -> None:
    """A repair took a damaged batch out of it, or the topic was compacted until a while ago: that cannot be seen."""
    source, target = cluster_with(0, *range(20)), cluster_with(0, 0, *range(4, 10))
    target.topic_configs["t"] = {"cleanup.policy": "delete"}
    copy, error = proven(source, target)
    assert error is None
    assert copy.next_offset == 1
    assert copy.counts.duplicate_records == 6


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_what_a_compacted_topic_lacks_is_no_gap_where_its_offsets_leave_room(policy: str) -> None:
    source, target = cluster_with(0, *range(20)), cluster_with(0, 0, *range(4, 10))
    target.topic_configs["t"] = {"cleanup.policy": policy}
    notes: list[str] = []
    copy, error = proven(source, target, notes=notes)
    assert (error, notes) == (None, [])
    assert copy.next_offset == 10


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_the_source_compacted_is_no_gap_of_the_target(policy: str) -> None:
    """The copy never got the records, and has no offsets for them."""
    source, target = cluster_with(0, 0, 1, 5, 6, *range(9, 20)), cluster_of(0, 1, 5, 6, 9)
    target.topic_configs["t"] = {"cleanup.policy": policy}
    notes: list[str] = []
    copy, error = proven(source, target, notes=notes)
    assert (error, notes) == (None, [])
    assert copy.offsets.runs == [Run(0, 0, 2), Run(5, 2, 2), Run(9, 4, 1)]


def test_policy_that_cannot_be_read_holds_the_copy_up() -> None:
    source, target = cluster_with(0, *range(20)), cluster_with_a_marker("delete")
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    target.brokers[1].error_of = lambda api, partition: refused if api is ApiKey.DESCRIBE_CONFIGS else None
    copy, error = proven(source, target)
    assert "topic t" in str(error)
    assert copy.next_offset == 0


def test_policy_is_not_read_where_nothing_is_compared() -> None:
    source, target = cluster_with(0, *range(20)), cluster_of(*range(10))
    proven(source, target, copied=10)
    assert ApiKey.DESCRIBE_CONFIGS not in [api for api, _ in target.brokers[1].seen]


def test_markers_of_transactions_on_the_source_are_no_gap() -> None:
    """Offsets 5 and 6 of the source have no records: the copy has none, either."""
    source, target = cluster_with(0, *range(5), *range(7, 20)), cluster_of(*range(5), 7, 8)
    target.topic_configs["t"] = {"cleanup.policy": "delete"}
    notes: list[str] = []
    copy, error = proven(source, target, notes=notes)
    assert (error, notes) == (None, [])
    assert copy.offsets.runs == [Run(0, 0, 5), Run(7, 5, 2)]


def test_what_retention_took_of_both_sides_is_no_gap() -> None:
    source, target = cluster_with(0, *range(20)), cluster_of(*range(10))
    target.topic_configs["t"] = {"cleanup.policy": "delete"}
    for cluster in (source, target):
        cluster.partitions[HERE].start = 4
    notes: list[str] = []
    copy, error = proven(source, target, copied=2, notes=notes)
    assert (error, notes) == (None, [])
    assert copy.next_offset == 10


def test_records_that_another_mirror_copied_beside_this_one_are_counted_and_not_foreign() -> None:
    """It lagged, and continued for a while."""
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


def test_records_that_another_mirror_copied_ahead_of_this_one_are_not_foreign_either() -> None:
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


def explained(source: FakeCluster, target: FakeCluster, unknown: range) -> tuple[PartitionCopy, int]:
    """The count of duplicates among these offsets of the target."""
    copy = PartitionCopy(SourcePartition("c", NO_ID, "t", 0), NO_ID, OffsetTranslation(2, 2), Counts())
    copy.on_source_seen(source.partitions[HERE].end)
    with source.client() as here, target.client() as there:
        return copy, Prover(here, there, MirrorOptions(), lambda text: None).explain(copy, unknown)


def test_marker_is_no_record_of_another_writer() -> None:
    """A broker writes it again when the answer to its first write was lost."""
    copy, duplicates = explained(cluster_with(0, *range(20)), cluster_with_a_marker("delete"), range(2, 3))
    assert (duplicates, copy.counts.duplicate_records, copy.counts.foreign_records) == (0, 0, 0)


def test_records_beside_a_marker_are_counted_without_it() -> None:
    copy, duplicates = explained(cluster_with(0, *range(20)), cluster_with_a_marker("delete"), range(2, 5))
    assert (duplicates, copy.counts.duplicate_records, copy.counts.foreign_records) == (2, 2, 0)
    with pytest.raises(ForeignRecords, match="wrote 2 records"):
        explained(cluster_with(0, 0, 1, 2), cluster_with_a_marker("delete"), range(2, 5))
