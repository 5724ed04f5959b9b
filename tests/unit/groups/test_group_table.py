from __future__ import annotations

import pytest

from ottla.groups import group_table
from ottla.groups.commands import OffsetToCommit
from ottla.groups.group_log import GroupRecordError
from ottla.groups.group_metadata import GroupMetadata, StoredMember, group_key, group_record
from ottla.groups.offset_records import offset_key, offset_key_prefix, offset_value
from ottla.groups.replies import DescribedMember
from tests.unit.groups.coordinator import GROUP, TOPIC, Coordinator

KEY = offset_key(offset_key_prefix(GROUP, TOPIC), 0)


def value(offset: int) -> bytes:
    return offset_value(OffsetToCommit(TOPIC, 0, offset, -1, ""), 1_000, None)


def metadata(*member_ids: str, leader_id: str | None = None) -> GroupMetadata:
    members = tuple(StoredMember(one, None, "c", "/h", 60_000, 10_000, b"s", b"a") for one in member_ids)
    return GroupMetadata("consumer", 4, "range" if members else None, leader_id, 1_000, members)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_newest_record_of_a_key_counts(coordinator: Coordinator) -> None:
    for offset in (5, 6, 4):
        coordinator.shard.replay(KEY, value(offset))
    assert coordinator.committed() == {(TOPIC, 0): 4}
    coordinator.shard.replay(KEY, None)
    assert coordinator.committed() == {}
    coordinator.shard.replay(KEY, value(7))
    assert coordinator.committed() == {(TOPIC, 0): 7}


def test_offset_is_found_under_both_versions_of_its_key(coordinator: Coordinator) -> None:
    old_key = b"\x00\x00" + KEY[2:]
    coordinator.shard.replay(old_key, value(1))
    coordinator.shard.replay(KEY, value(2))
    assert coordinator.committed() == {(TOPIC, 0): 2}
    coordinator.shard.replay(old_key, None)
    coordinator.shard.replay(KEY, value(3))
    assert coordinator.committed() == {(TOPIC, 0): 3}


def test_many_topics_do_not_grow_the_memory_of_places(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_table, "PLACES_MAX", 3)
    for offset in range(2):
        for number in range(10):
            coordinator.shard.replay(offset_key(offset_key_prefix(GROUP, f"topic{number}"), 0), value(offset))
    assert coordinator.committed() == {(f"topic{number}", 0): 1 for number in range(10)}


@pytest.mark.parametrize("key", [b"\x00\x09", b"\x00\x63rest", b"\xff\xff"])
def test_unknown_version_of_a_key_is_skipped(coordinator: Coordinator, key: bytes) -> None:
    coordinator.shard.replay(key, b"whatever")
    coordinator.shard.replay(key, None)
    assert len(coordinator.shard) == 0


@pytest.mark.parametrize(
    ("key", "damaged"),
    [
        (b"", b"x"),
        (b"\x00", b"x"),
        (KEY[:-1], value(5)),
        (KEY, value(5)[:-1]),
        (KEY[:-4] + b"\xff\xff\xff\xff", value(5)),
        (b"\x00\x01\x00\x01\xff\x00\x01a\x00\x00\x00\x00", value(5)),
        (group_key(GROUP), b"\x00\x03"),
        (group_key(GROUP) + b"x", None),
        (b"\x00\x03\x00\x09", b"\x00\x00"),
        (b"\x00\x03\x00\x01g", b"\x00\x00\xff"),
    ],
)
def test_damaged_record_is_refused_by_name_and_changes_nothing(
    coordinator: Coordinator, key: bytes, damaged: bytes | None
) -> None:
    coordinator.shard.replay(KEY, value(1))
    with pytest.raises(GroupRecordError):
        coordinator.shard.replay(key, damaged)
    assert coordinator.committed() == {(TOPIC, 0): 1}
    assert len(coordinator.shard) == 1


def test_logged_generation_makes_a_stable_group_and_its_tombstone_removes_it(coordinator: Coordinator) -> None:
    coordinator.shard.replay(*group_record(GROUP, metadata("m", "n", leader_id="n")))
    assert coordinator.state() == "Stable"
    coordinator.shard.replay(*group_record(GROUP, metadata("n", leader_id="n")))
    assert [one.member_id for one in coordinator.describe().members] == ["n"]
    coordinator.shard.replay(group_key(GROUP), None)
    assert coordinator.state() == "Dead"


def test_leader_that_is_no_member_is_replaced_by_the_first(coordinator: Coordinator) -> None:
    coordinator.shard.replay(*group_record(GROUP, metadata("m", "n", leader_id="gone")))
    coordinator.shard.loaded(coordinator.now)
    assert coordinator.ask_join("m").waits


def test_offsets_outlive_the_record_of_their_group(coordinator: Coordinator) -> None:
    coordinator.shard.replay(*group_record(GROUP, metadata()))
    coordinator.shard.replay(KEY, value(5))
    coordinator.shard.replay(group_key(GROUP), None)
    assert coordinator.committed() == {(TOPIC, 0): 5}
    assert coordinator.describe()[2:4] == ("Empty", "")


def test_tombstone_of_a_missing_key_has_no_effect(coordinator: Coordinator) -> None:
    coordinator.shard.replay(KEY, None)
    coordinator.shard.replay(group_key(GROUP), None)
    coordinator.shard.replay(b"\x00\x03\x00\x04team", None)
    assert len(coordinator.shard) == 0


def test_later_generation_says_all_that_is_known_of_a_member(coordinator: Coordinator) -> None:
    first = metadata("m", leader_id="m")
    later = first.members[0]._replace(
        client_id="d", client_host="/i", rebalance_timeout_ms=1, session_timeout_ms=7_000, subscription=b"t"
    )
    coordinator.shard.replay(*group_record(GROUP, first))
    coordinator.shard.replay(*group_record(GROUP, first._replace(protocol_name="sticky", members=(later,))))
    described = coordinator.describe()
    assert described.protocol_name == "sticky"
    assert described.members == [DescribedMember("m", None, "d", "/i", b"t", b"a")]
    coordinator.shard.loaded(coordinator.now)
    coordinator.pass_ms(7_000)
    assert coordinator.state() == "Empty"
