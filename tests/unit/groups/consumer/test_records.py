"""The records of a consumer group, against bytes that Apache Kafka 4.1.2 wrote.

The fixture is its partition of `__consumer_offsets`, whole, after: a librdkafka consumer subscribed to topic `orders`;
a static one (`i2`, assignor range) subscribed to a pattern; both closed.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.groups.consumer.member import CurrentAssignment, MemberMetadata, MemberState
from ottla.groups.consumer.records import (
    ConsumerRecordKey,
    ConsumerRecordType,
    ResolvedPattern,
    decode_current,
    decode_group_epoch,
    decode_key,
    decode_member,
    decode_pattern,
    decode_target,
    decode_target_epoch,
    encode_current,
    encode_group_epoch,
    encode_key,
    encode_member,
    encode_pattern,
    encode_target,
    encode_target_epoch,
    is_consumer_record,
    tombstone,
)
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.model.errors import RequestError, WireError
from ottla.records.record import decode_batch, split_batches

LOG = Path(__file__).with_name("apache_kafka_4_1_2.log").read_bytes()
ORDERS = UUID("4d0d1442-fc1d-402b-809c-b3eb34f2a777")
PAYMENTS = UUID("659a689a-6312-4d92-bbb8-df95aad958bd")
DYNAMIC, STATIC = "339gAahnQz6NAS8p/6T8Xw", "zrj+P7FuQNunyVyyfnVFjQ"
PATTERN = "(^(orders|payments)$)"
# Where Apache Kafka writes an absent structure of classic members: one tagged field, number 0, of one byte, null.
NO_CLASSIC_METADATA = b"\x01\x00\x01\x00"


def apache_records() -> list[tuple[bytes, bytes | None]]:
    found = []
    for batch in split_batches(memoryview(LOG)):
        for record in decode_batch(batch):
            assert record.key is not None
            found.append((bytes(record.key), None if record.value is None else bytes(record.value)))
    assert len(found) == 20
    return found


def values(record_type: ConsumerRecordType) -> list[bytes]:
    return [value for key, value in apache_records() if decode_key(key).type is record_type and value is not None]


def test_keys_of_apache_kafka_are_read_and_written_byte_for_byte() -> None:
    keys = [key for key, _ in apache_records()]
    assert all(is_consumer_record(int.from_bytes(key[:2])) for key in keys)
    assert [encode_key(decode_key(key)) for key in keys] == keys
    assert decode_key(keys[0]) == ConsumerRecordKey(ConsumerRecordType.MEMBER, "fixture", DYNAMIC)
    assert {decode_key(key).type for key in keys} == set(ConsumerRecordType) - {ConsumerRecordType.TOPICS}


def test_epochs_of_apache_kafka_are_read_and_written_byte_for_byte() -> None:
    groups, targets = values(ConsumerRecordType.GROUP_EPOCH), values(ConsumerRecordType.TARGET_EPOCH)
    assert [decode_group_epoch(value) for value in groups] == [
        (1, -3730753337670748391),
        (2, -4506201178479933754),
        (3, -4506201178479933754),
    ]
    assert [encode_group_epoch(*decode_group_epoch(value)) for value in groups] == groups
    assert [decode_target_epoch(value) for value in targets] == [1, 2]
    assert [encode_target_epoch(decode_target_epoch(value)) for value in targets] == targets


def test_assignments_of_apache_kafka_are_read_and_written_byte_for_byte() -> None:
    targets, currents = values(ConsumerRecordType.TARGET), values(ConsumerRecordType.CURRENT)
    assert decode_target(targets[1]) == {ORDERS: {2}}
    assert decode_target(targets[2]) == {PAYMENTS: {0, 1}, ORDERS: {0, 1}}
    assert [encode_target(decode_target(value)) for value in targets] == targets
    assert decode_current(currents[2]) == CurrentAssignment(
        1, 1, MemberState.UNREVOKED_PARTITIONS, {ORDERS: frozenset({2})}, {ORDERS: frozenset({0, 1})}
    )
    assert decode_current(currents[-1]).member_epoch == -2
    assert [encode_current(decode_current(value)) for value in currents] == currents


def test_members_of_apache_kafka_are_read() -> None:
    first, second = (decode_member(value) for value in values(ConsumerRecordType.MEMBER))
    assert first == MemberMetadata(None, None, "c", "/127.0.0.1", ("orders",), None, 300_000, None)
    assert second == MemberMetadata("i2", None, "c", "/127.0.0.1", (), PATTERN, 300_000, "range")


def test_members_are_written_as_apache_kafka_does_but_for_the_empty_marks_of_absent_fields() -> None:
    first, second = values(ConsumerRecordType.MEMBER)
    assert encode_member(decode_member(second)) == second.removesuffix(NO_CLASSIC_METADATA) + b"\x00"
    # No pattern: null here, an empty string there.
    theirs = first.removesuffix(NO_CLASSIC_METADATA) + b"\x00"
    assert encode_member(decode_member(first)) == theirs.replace(b"orders\x01", b"orders\x00")


def test_patterns_of_apache_kafka_are_read_and_written_byte_for_byte() -> None:
    (value,) = values(ConsumerRecordType.PATTERN)
    assert decode_pattern(value) == ResolvedPattern(frozenset({"orders", "payments"}), 1795272016780, 26)
    assert encode_pattern(decode_pattern(value)) == value


def test_a_group_of_apache_kafka_comes_back_as_it_was() -> None:
    state = ConsumerGroupState("fixture")
    for key, value in apache_records():
        state.replay(decode_key(key), value)
        state.check_invariants()
    assert state.members.keys() == {STATIC}
    assert (state.group_epoch, state.assignment_epoch, state.name) == (3, 2, "Assigning")
    assert state.static_ids == {"i2": STATIC}
    assert state.holder(PAYMENTS, 1) == STATIC
    assert state.holder(ORDERS, 2) is None
    assert state.patterns.keys() == {PATTERN}


def test_keys_of_other_groups_are_distinguished() -> None:
    assert [number for number in range(-1, 30) if is_consumer_record(number)] == [3, 4, 5, 6, 7, 8, 16]


def test_tombstone_has_the_key_and_no_value() -> None:
    key = ConsumerRecordKey(ConsumerRecordType.CURRENT, "g", "m")
    assert tombstone(key) == (b"\x00\x08\x00\x01g\x00\x01m", None)


@pytest.mark.parametrize("key", [b"\x00\x03", b"\x00\x03\x00\x05g", b"\x00\x08\x00\x01g", b"\x00\x03\x00\x01gx"])
def test_damaged_key_is_refused(key: bytes) -> None:
    with pytest.raises(WireError):
        decode_key(key)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x01\x00", b"\x00\x00\x00\x00"])
def test_damaged_value_or_one_of_a_later_version_is_refused(value: bytes) -> None:
    with pytest.raises(WireError):
        decode_group_epoch(value)


def test_tagged_fields_of_a_later_release_are_stepped_over() -> None:
    later = encode_target_epoch(7)[:-1] + b"\x01\x05\x03abc"
    assert decode_target_epoch(later) == 7


def test_state_of_a_later_release_is_unknown() -> None:
    value = bytearray(encode_current(CurrentAssignment(3, 2, MemberState.STABLE, {}, {})))
    value[10] = 9
    assert decode_current(bytes(value)).state is MemberState.UNKNOWN


def test_names_that_do_not_fit_in_a_key_are_refused() -> None:
    with pytest.raises(RequestError, match="32767 are allowed"):
        encode_key(ConsumerRecordKey(ConsumerRecordType.MEMBER, "g", "m" * 32_768))


def test_partitions_of_a_topic_without_any_are_left_out() -> None:
    assert decode_target(encode_target({ORDERS: frozenset()})) == {}
