"""What a stream gives to a transaction: the offsets of everything that was handed out, as the member that owns it."""

from __future__ import annotations

import pytest

from ottla.client.groups.group_types import CommittedOffset, GroupMetadata
from ottla.client.streams.errors import CommitFailed, NotAssigned
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from tests.unit.client.streams.scripted import Desk

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def desk() -> Desk:
    return Desk(enable_auto_commit=False)


def offsets_of(it: Desk, count: int) -> dict[TopicPartition, int]:
    """Of the next messages; the last one is in hand."""
    (stream,) = it.streams
    message = [next(stream) for _ in range(count)][-1]
    return {partition: each.offset for partition, each in stream.group_offsets(message).offsets.items()}


def test_transaction_gets_what_was_handed_out_and_the_message_in_hand() -> None:
    it = desk()
    it.start(0, 7)
    it.bring(0, [b"a"] * 5)
    (stream,) = it.streams
    next(stream)
    group, offsets = stream.group_offsets(next(stream))
    assert group == GroupMetadata("g", 3, "member")
    assert offsets == {T0: CommittedOffset(9)}


def test_next_transaction_gets_what_is_new() -> None:
    it = desk()
    for partition in range(2):
        it.start(partition, 0)
        it.bring(partition, [b"a"] * 2)
    assert offsets_of(it, 2) == {T0: 2}
    assert offsets_of(it, 1) == {T1: 1}
    assert offsets_of(it, 1) == {T1: 2}


def test_nothing_is_committed_by_the_connector() -> None:
    it = desk()
    claim = it.start(0, 0)
    it.bring(0, [b"a"] * 2)
    offsets_of(it, 2)
    it.revoke(0, claim)
    (stream,) = it.streams
    assert list(stream) == []
    assert it.membership.committed == []
    assert it.membership.stopped == [(T0, claim, NO_OFFSET)]


def test_partition_that_has_moved_with_messages_of_the_transaction_fails_it_once() -> None:
    it = desk()
    claim = it.start(0, 0)
    it.bring(0, [b"a"])
    it.start(1, 0)
    it.bring(1, [b"b"] * 2)
    (stream,) = it.streams
    assert next(stream).partition == 0
    message = next(stream)
    assert message.partition == 1
    it.lose(0, claim)
    with pytest.raises(NotAssigned, match="t-0") as raised:
        stream.group_offsets(message)
    assert "abort" in (raised.value.hint or "")
    assert offsets_of(it, 1) == {T1: 2}


def test_partition_that_has_moved_after_its_messages_were_given_does_not_matter() -> None:
    it = desk()
    claim = it.start(0, 0)
    it.bring(0, [b"a"])
    assert offsets_of(it, 1) == {T0: 1}
    it.lose(0, claim)
    it.start(1, 0)
    it.bring(1, [b"b"])
    assert offsets_of(it, 1) == {T1: 1}


def test_partition_that_is_being_given_back_still_counts_while_its_message_is_in_hand() -> None:
    it = desk()
    claim = it.start(0, 0)
    it.bring(0, [b"a"] * 2)
    (stream,) = it.streams
    message = next(stream)
    it.revoke(0, claim)
    assert stream.group_offsets(message).offsets == {T0: CommittedOffset(1)}


def test_seek_back_after_an_abort_gives_the_messages_to_the_next_transaction() -> None:
    it = desk()
    it.start(0, 0)
    it.bring(0, [b"a"] * 3)
    assert offsets_of(it, 3) == {T0: 3}
    (stream,) = it.streams
    stream.seek(0, 0)
    it.bring(0, [b"a"] * 3)
    assert offsets_of(it, 2) == {T0: 2}


def test_first_place_is_committed_before_a_transaction_commits_another() -> None:
    it = desk()
    claim = it.start(0)
    it.answer(0, 5)
    it.bring(0, [b"a"])
    assert it.membership.committed == [(T0, claim, 5)]
    (stream,) = it.streams
    message = next(stream)
    with pytest.raises(CommitFailed, match="an earlier commit"):
        stream.group_offsets(message, timeout_ms=0)
    it.confirm(0, claim, 5)
    assert stream.group_offsets(message).offsets == {T0: CommittedOffset(6)}


def test_connector_with_automatic_commits_gives_no_offsets_to_transactions() -> None:
    it = Desk()
    it.start(0, 0)
    it.bring(0, [b"a"])
    (stream,) = it.streams
    with pytest.raises(ConfigError, match="commits offsets automatically") as raised:
        stream.group_offsets(next(stream))
    assert raised.value.hint == "open it with enable_auto_commit=False"


def test_consumer_that_is_no_member_now_has_no_offsets_for_a_transaction() -> None:
    it = desk()
    it.start(0, 0)
    it.bring(0, [b"a"])
    (stream,) = it.streams
    message = next(stream)
    it.membership.member = None
    with pytest.raises(NotAssigned, match="not a member"):
        stream.group_offsets(message)
