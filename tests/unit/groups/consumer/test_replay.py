"""A group comes back from its log as it was, also from a log that is being compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.groups.consumer.member import MemberMetadata, MemberState
from ottla.groups.consumer.records import (
    ConsumerRecordKey,
    ConsumerRecordType,
    decode_key,
    encode_current,
    encode_member,
)
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import SmallGroup, image, owned

if TYPE_CHECKING:
    from ottla.groups.group_log import GroupRecord


@pytest.fixture
def group() -> SmallGroup:
    small = SmallGroup(image(a=4, b=1))
    small.joined("m", instance_id="i")
    small.joined("n", None, pattern="[ab]")
    small.beat("m", 1, instance_id="i")
    small.beat("m", 1, instance_id="i", owned=owned("a-0", "a-1"))
    small.beat("n", 2)
    small.joined("gone")
    small.leave("gone")
    return small


def replayed(log: list[GroupRecord]) -> ConsumerGroupState:
    state = ConsumerGroupState("g")
    for record in log:
        state.replay(decode_key(record.key), record.value)
    return state


def facts(state: ConsumerGroupState) -> dict[str, object]:
    return vars(state)


def test_replayed_state_is_the_live_one(group: SmallGroup) -> None:
    assert facts(replayed(group.log)) == facts(group.group.state)


def test_replay_of_a_compacted_log_gives_the_same_state(group: SmallGroup) -> None:
    newest = {record.key: index for index, record in enumerate(group.log)}
    compacted = [record for index, record in enumerate(group.log) if newest[record.key] == index]
    without_tombstones = [record for record in compacted if record.value is not None]
    assert facts(replayed(compacted)) == facts(group.group.state)
    assert facts(replayed(without_tombstones)) == facts(group.group.state)


def test_replay_takes_the_parts_of_a_member_in_any_order(group: SmallGroup) -> None:
    newest = {record.key: record for record in group.log}
    assert facts(replayed(list(reversed(newest.values())))) == facts(group.group.state)


def test_replay_keeps_an_instance_id_with_its_newest_holder_in_any_order(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    group.joined("m2", instance_id="i")
    newest = {record.key: record for record in group.log}
    assert facts(replayed(list(reversed(newest.values())))) == facts(group.group.state)


def test_instance_id_stays_with_its_newest_holder_when_the_former_one_is_removed_after_it() -> None:
    state = ConsumerGroupState("g")
    member = ConsumerRecordType.MEMBER
    for member_id in ("m", "m2"):
        state.replay(ConsumerRecordKey(member, "g", member_id), encode_member(MemberMetadata("i")))
    state.replay(ConsumerRecordKey(member, "g", "m"), None)
    assert state.static_ids == {"i": "m2"}


def test_records_of_a_member_that_is_not_there_do_no_harm() -> None:
    state = ConsumerGroupState("g")
    for record_type in ConsumerRecordType:
        state.replay(ConsumerRecordKey(record_type, "g", "nobody"), None)
    assert facts(state) == facts(ConsumerGroupState("g"))


def test_partition_whose_new_holder_comes_first_in_the_log_stays_with_it(group: SmallGroup) -> None:
    state = replayed(group.log)
    topic = next(iter(state.current("m").assigned))
    taken = state.current("n")._replace(assigned={topic: frozenset({0, 1, 2, 3})})
    current_of = ConsumerRecordType.CURRENT
    state.replay(ConsumerRecordKey(current_of, "g", "n"), encode_current(taken))
    state.replay(ConsumerRecordKey(current_of, "g", "m"), None)
    assert [state.holder(topic, partition) for partition in range(4)] == ["n"] * 4


def test_members_keep_their_epochs_over_a_restart(group: SmallGroup) -> None:
    group.restart()
    assert group.beat("m", 1, instance_id="i").error is ErrorCode.FENCED_MEMBER_EPOCH
    reply = group.beat("m", 2, instance_id="i")
    assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, group.group.state.group_epoch)


def test_decision_that_could_not_be_logged_has_changed_nothing(group: SmallGroup) -> None:
    before = facts(replayed(group.log))
    group.is_log_full = True
    group.join("late")
    group.leave("m", instance_id="i")
    group.topics = image(a=9, b=1)
    group.beat("n", 2)
    assert facts(group.group.state) == before
    group.is_log_full = False
    assert group.beat("n", 2).member_epoch > 2


def test_change_of_topics_that_could_not_be_logged_is_noticed_again() -> None:
    group = SmallGroup(image(a=1))
    group.joined("m")
    group.topics = image(a=2)
    group.is_log_full = True
    group.beat("m", 1)
    group.is_log_full = False
    assert group.beat("m", 1).member_epoch == 2
    assert group.assigned("m") == {"a-0", "a-1"}


def test_topics_record_of_an_older_kafka_is_removed_with_the_next_epoch(group: SmallGroup) -> None:
    key = ConsumerRecordKey(ConsumerRecordType.TOPICS, "g")
    group.group.replay(key, b"\0\0whatever it held")
    assert group.group.state.has_topics_record
    group.joined("late")
    assert not group.group.state.has_topics_record


def test_member_in_a_state_of_a_newer_broker_must_rejoin(group: SmallGroup) -> None:
    unknown = group.group.state.current("n")._replace(state=MemberState.UNKNOWN)
    group.group.replay(ConsumerRecordKey(ConsumerRecordType.CURRENT, "g", "n"), encode_current(unknown))
    assert group.beat("n", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("n", 2, owned=owned("b-0")).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("n", 2, owned=[]).error is ErrorCode.NONE
