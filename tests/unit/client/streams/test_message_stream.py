from __future__ import annotations

import json
import threading

import pytest

from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.client.membership.membership import CommitRefused, Failed
from ottla.client.streams.errors import CommitFailed, ConsumerClosed, NoPosition, NotAssigned, PoisonMessage
from ottla.client.streams.message_stream import MessageStream
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.records.errors import CorruptBatch
from ottla.records.header import BASE_OFFSET
from tests.malformed_batches import SHAPES, malformed_batch
from tests.unit.client.streams.scripted import FOREVER_MS, Desk, as_fetch_thread, batch_of, fetched

T0 = TopicPartition("t", 0)


def test_stream_hands_out_what_was_fetched_in_order() -> None:
    desk = Desk()
    desk.start(0, 7)
    desk.bring(0, [b"a", b"b", b"c"])
    assert [(each.topic, each.partition, each.offset, each.value) for each in desk.streams[0]] == [
        ("t", 0, 7, b"a"),
        ("t", 0, 8, b"b"),
        ("t", 0, 9, b"c"),
    ]


def test_partitions_of_a_stream_take_turns_by_batch() -> None:
    desk = Desk()
    for partition in range(2):
        desk.start(partition, 0)
        desk.bring_records(partition, 0, 4, batch_of(0, [b"a", b"b"]) + batch_of(2, [b"c", b"d"]))
    seen = [(message.partition, message.offset) for message in desk.streams[0]]
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


def test_messages_below_the_position_are_left_out_of_their_batch() -> None:
    desk = Desk()
    desk.start(0, 12)
    desk.bring_records(0, 12, 15, batch_of(10, [b"a"] * 5))
    assert desk.offsets() == [12, 13, 14]


def test_committed_is_what_was_passed_and_not_what_is_in_hand() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    for message in desk.streams[0]:
        if message.offset == 3:
            break
    desk.streams[0].commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 3)]
    # The loop continues: the one in hand is passed, too.
    assert desk.offsets() == [4]
    desk.streams[0].commit(wait=False)
    assert desk.membership.committed[1:] == [(T0, claim, 5)]


def test_commit_of_a_message_includes_it() -> None:
    desk = Desk(enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    message = next(desk.streams[0])
    desk.streams[0].commit(message, wait=False)
    assert desk.membership.committed == [(T0, claim, 1)]
    with pytest.raises(NotAssigned, match="message at 4 was not handed out by this stream"):
        desk.streams[0].commit(message._replace(offset=4))
    desk.lose(0, claim)
    with pytest.raises(NotAssigned, match="has moved since this message was handed out"):
        desk.streams[0].commit(message)


def test_commit_raises_what_the_group_says_and_can_be_repeated() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    assert desk.offsets() == [0, 1, 2, 3, 4]
    first = desk.engine.commit(desk.buffers)
    desk.engine.on_events([CommitRefused(T0, claim, 5, OttlaError("the log is full"))])
    with pytest.raises(CommitFailed, match="not committed: the log is full"):
        desk.engine.wait_for(first, None)
    second = desk.engine.commit(desk.buffers)
    desk.confirm(0, claim, 5)
    desk.engine.wait_for(second, None)
    assert desk.membership.committed == [(T0, claim, 5)] * 2


def test_commit_of_a_claim_that_is_lost_meanwhile_fails() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"])
    desk.offsets()
    outcome = desk.engine.commit(desk.buffers)
    desk.lose(0, claim)
    with pytest.raises(CommitFailed, match="t-0 was lost to the group"):
        desk.engine.wait_for(outcome, None)


def test_commit_without_an_answer_in_time_fails() -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a"])
    desk.offsets()
    with pytest.raises(CommitFailed, match="did not answer a commit within 0 ms"):
        desk.streams[0].commit(timeout_ms=0)


def test_an_answer_to_an_earlier_commit_is_not_one_to_a_later_one() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    next(desk.streams[0])
    next(desk.streams[0])
    first = desk.engine.commit(desk.buffers)
    desk.offsets()
    second = desk.engine.commit(desk.buffers)
    desk.confirm(0, claim, 1)
    assert (first.is_known, second.is_known) == (True, False)
    desk.confirm(0, claim, 3)
    assert second.is_known


def test_offsets_are_committed_when_their_time_has_come_and_only_new_ones() -> None:
    desk = Desk(auto_commit_interval_ms=5_000)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 3)
    desk.offsets()
    assert desk.engine.on_time() == desk.clock.monotonic_ms() + 5_000
    assert desk.membership.committed == []
    for _ in range(2):
        desk.clock.advance(5_000)
        desk.engine.on_time()
    assert desk.membership.committed == [(T0, claim, 3)], "the second time one is under way"
    desk.confirm(0, claim, 3)
    desk.clock.advance(5_000)
    desk.engine.on_time()
    assert desk.membership.committed == [(T0, claim, 3)], "nothing is new"


def test_first_position_is_committed_when_it_is_known() -> None:
    desk = Desk(auto_offset_reset="latest")
    claim = desk.start(0, NO_OFFSET)
    assert desk.membership.committed == []
    desk.answer(0, 42)
    assert desk.membership.committed == [(T0, claim, 42)]
    order = desk.order(0)
    assert order is not None
    assert (order.offset, order.question) == (42, None)


def test_nothing_is_handed_out_of_a_revoked_partition_in_the_middle_of_a_batch() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    stream = iter(desk.streams[0])
    assert [next(stream).offset for _ in range(2)] == [0, 1]
    desk.revoke(0, claim)
    assert desk.membership.stopped == [], "one is in hand"
    assert list(stream) == []
    assert desk.membership.stopped == [(T0, claim, 2)]


def test_revoked_partition_waits_for_the_message_in_hand_but_not_for_ever() -> None:
    desk = Desk(release_wait_ms=1_000)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    next(desk.streams[0])
    desk.revoke(0, claim)
    assert desk.engine.on_time() == desk.clock.monotonic_ms() + 1_000
    desk.clock.advance(1_000)
    desk.engine.on_time()
    assert desk.membership.stopped == [(T0, claim, 0)]
    desk.release(0, claim)
    assert desk.offsets() == []
    assert len(desk.membership.stopped) == 1


def test_revoked_partition_with_nothing_in_hand_is_given_back_at_once() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 0)]


def test_revoked_partition_whose_message_in_hand_is_said_to_be_done_is_given_back_at_once() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    message = next(desk.streams[0])
    desk.revoke(0, claim)
    desk.streams[0].commit(message, wait=False)
    assert desk.membership.stopped == [(T0, claim, 1)]


def test_without_automatic_commits_a_release_commits_what_the_user_did() -> None:
    desk = Desk(enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    next(desk.streams[0])
    next(desk.streams[0])
    desk.streams[0].commit(wait=False)
    desk.offsets()
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 1)]


def test_lost_partition_stops_at_once_and_commits_nothing() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    stream = iter(desk.streams[0])
    next(stream)
    desk.lose(0, claim)
    assert list(stream) == []
    assert (desk.membership.stopped, desk.membership.committed) == ([], [])


def test_nothing_is_handed_out_when_the_lease_has_ended_and_nothing_is_left_out_when_it_goes_on() -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    stream = iter(desk.streams[0])
    assert next(stream).offset == 0
    desk.membership.hand_out_until_ms = 0
    # What a hand-out knows of the lease is from when it began: as if that moment had come.
    hand_out = desk.buffers[0].readings[T0].hand_out
    assert hand_out is not None
    hand_out.stop()
    assert list(stream) == []
    assert desk.offsets() == []
    desk.membership.hand_out_until_ms = FOREVER_MS
    assert desk.offsets() == [1, 2, 3, 4]


def test_seek_forgets_what_was_fetched_and_sets_back_what_is_committed() -> None:
    desk = Desk()
    claim = desk.start(0, 10)
    desk.bring(0, [b"a"] * 5)
    stream = iter(desk.streams[0])
    assert [next(stream).offset for _ in range(3)] == [10, 11, 12]
    desk.streams[0].seek(0, 4)
    assert list(stream) == []
    desk.streams[0].commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 4)]
    desk.bring(0, [b"b"] * 2)
    assert desk.offsets() == [4, 5]


def test_seek_back_counts_also_when_messages_beyond_were_said_to_be_done() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    message = next(desk.streams[0])
    desk.streams[0].commit(message, wait=False)
    desk.streams[0].seek(0, 0)
    desk.streams[0].commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 1), (T0, claim, 0)]


def test_what_was_fetched_before_a_seek_counts_no_more() -> None:
    desk = Desk()
    desk.start(0, 10)
    order = desk.order(0)
    assert order is not None
    as_fetch_thread(desk.engine, lambda machine: machine.reserve(T0))
    desk.streams[0].seek(0, 4)
    as_fetch_thread(desk.engine, lambda machine: machine.on_landed(T0, 100))
    desk.orders[T0] = order
    as_fetch_thread(
        desk.engine,
        lambda machine: machine.on_fetched(fetched(T0, 10, 11, batch_of(10, [b"a"]).ljust(100)), order.token),
    )
    assert desk.offsets() == []
    assert desk.buffers[0].prefetched.waiting_bytes == 0


def test_seek_to_a_time_waits_for_the_answer_and_commits_nothing_else_meanwhile() -> None:
    desk = Desk()
    claim = desk.start(0, 10)
    desk.bring(0, [b"a"] * 5)
    next(desk.streams[0])
    next(desk.streams[0])
    desk.streams[0].seek(0, timestamp_ms=5_000)
    order = desk.order(0)
    assert order is not None
    assert order.question == 5_000
    assert desk.streams[0].position(0) is None
    desk.streams[0].commit(wait=False)
    desk.answer(0, 3)
    desk.streams[0].commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 11), (T0, claim, 3)]
    desk.bring(0, [b"b"])
    assert desk.offsets() == [3]


def test_poison_message_is_raised_until_it_is_stepped_over() -> None:
    desk = Desk(deserializer=json.loads)
    claim = desk.start(0, 0)
    desk.bring(0, [b"1", b"{", None, b"4"])
    stream = desk.streams[0]
    iterator = iter(stream)
    assert next(iterator).value == 1
    for again in (iterator, iter(stream), iterator):
        with pytest.raises(PoisonMessage, match=r"t-0, offset 1: .*JSONDecodeError"):
            next(again)
    stream.commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 1)], "it is not past"
    stream.skip()
    assert [message.value for message in iterator] == [None, 4]
    with pytest.raises(NotAssigned, match="no message to step over"):
        stream.skip()


def test_poison_by_a_deserializer_that_raises_stop_iteration_ends_no_stream() -> None:
    def stops(content: bytes) -> bytes:
        raise StopIteration

    desk = Desk(deserializer=stops)
    desk.start(0, 0)
    desk.bring(0, [b"1", b"2"])
    for offset in range(2):
        with pytest.raises(PoisonMessage, match=f"offset {offset}: .*StopIteration"):
            next(desk.streams[0])
        desk.streams[0].skip()
    assert desk.offsets() == []


def test_damaged_batch_is_poison_and_stepping_over_it_goes_on_after_it() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    damaged = bytearray(batch_of(2, [b"c", b"d"]))
    damaged[-2] ^= 1
    desk.bring_records(0, 0, 6, batch_of(0, [b"a", b"b"]) + bytes(damaged) + batch_of(4, [b"e", b"f"]))
    stream = desk.streams[0]
    assert [next(stream).offset for _ in range(2)] == [0, 1]
    with pytest.raises(PoisonMessage, match="t-0, offset 2: its batch is damaged: CorruptBatch"):
        next(stream)
    stream.skip()
    assert desk.offsets() == [4, 5]
    stream.commit(wait=False)
    assert desk.membership.committed == [(T0, claim, 6)]


@pytest.mark.parametrize("area", SHAPES.values(), ids=SHAPES)
def test_batch_of_a_broken_producer_is_poison_and_is_stepped_over_as_a_whole(area: bytes) -> None:
    desk = Desk()
    desk.start(0, 0)
    malformed = malformed_batch(area)
    BASE_OFFSET.pack_into(malformed, 0, 2)
    desk.bring_records(0, 0, 6, batch_of(0, [b"a", b"b"]) + bytes(malformed) + batch_of(5, [b"f"]))
    stream = desk.streams[0]
    read = []
    with pytest.raises(PoisonMessage, match=r"t-0, offset [2345]: its batch is damaged"):
        read += [message.offset for message in stream]
    stream.skip()
    assert desk.offsets()[-1:] == [5]


def test_bytes_that_are_no_batches_are_poison_and_are_fetched_behind_when_stepped_over() -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a"])
    order = desk.order(0)
    assert order is not None
    token = order.token
    as_fetch_thread(
        desk.engine, lambda machine: machine.on_unreadable(T0, token, 1, CorruptBatch("a batch of format 1"))
    )
    stream = desk.streams[0]
    assert next(stream).offset == 0, "what was fetched before comes first"
    with pytest.raises(PoisonMessage, match=r"t-0, offset 1: .*format 1"):
        next(stream)
    stream.skip()
    order = desk.order(0)
    assert order is not None
    assert order.offset == 2


def test_seek_goes_away_from_a_poison_message() -> None:
    desk = Desk(deserializer=json.loads)
    desk.start(0, 0)
    desk.bring(0, [b"{", b"2"])
    with pytest.raises(PoisonMessage):
        next(desk.streams[0])
    desk.streams[0].seek(0, 1)
    desk.bring(0, [b"2"])
    assert desk.offsets() == [1]


@pytest.mark.parametrize(("policy", "question"), [("earliest", -2), ("latest", -1)])
def test_offset_that_is_not_in_the_log_is_reset_as_the_policy_says(
    policy: str, question: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(auto_offset_reset=policy)
    desk.start(0, 99)
    order = desk.order(0)
    assert order is not None
    token = order.token
    as_fetch_thread(desk.engine, lambda machine: machine.on_out_of_range(OffsetOutOfRange(T0, 99), token, range(3, 10)))
    order = desk.order(0)
    assert order is not None
    assert order.question == question
    assert "offset 99 is not in the log; the log has 3 to 10" in caplog.text


def test_offset_that_is_not_in_the_log_is_raised_and_not_asked_for_again_when_the_policy_is_error() -> None:
    desk = Desk(auto_offset_reset="error")
    desk.start(0, 99)
    order = desk.order(0)
    assert order is not None
    as_fetch_thread(
        desk.engine, lambda machine: machine.on_out_of_range(OffsetOutOfRange(T0, 99), order.token, range(3, 10))
    )
    for _ in range(2):
        with pytest.raises(NoPosition, match="the log has 3 to 10"):
            next(desk.streams[0])
    assert as_fetch_thread(desk.engine, lambda machine: machine.take_orders()) == {}
    with pytest.raises(NotAssigned, match="not a message"):
        desk.streams[0].skip()


def test_reset_waits_until_what_was_fetched_before_is_handed_out() -> None:
    desk = Desk(auto_offset_reset="earliest")
    desk.start(0, 0)
    desk.bring(0, [b"a"] * 2)
    order = desk.order(0)
    assert order is not None
    assert not as_fetch_thread(desk.engine, lambda machine: machine.may_reset(T0, order.token))
    assert desk.offsets() == [0, 1]
    assert as_fetch_thread(desk.engine, lambda machine: machine.may_reset(T0, order.token))


def test_stream_that_nobody_reads_is_bounded_and_holds_up_no_other() -> None:
    desk = Desk(streams_count=2, stream_buffer_bytes=100_000)
    desk.start(0, 0, stream=0)
    desk.start(1, 0, stream=1)
    brought: dict[int, int] = {0: 0, 1: 0}
    for _ in range(50):
        for partition in (0, 1):
            brought[partition] += desk.bring(partition, [bytes(9_000)], offset=brought[partition])
        assert desk.buffers[0].prefetched.waiting_bytes <= 100_000
        desk.offsets(1)
    assert brought[1] == 50
    assert brought[0] < 12
    # Once it is read, its fetches continue.
    assert len(desk.offsets(0)) == brought[0]
    assert desk.bring(0, [b"a"], offset=brought[0])


def test_small_part_of_a_large_answer_does_not_keep_it_in_memory() -> None:
    desk = Desk()
    desk.start(0, 0)
    answer = bytearray(10_000)
    batch = batch_of(0, [b"a"])
    answer[: len(batch)] = batch
    order = desk.order(0)
    assert order is not None
    as_fetch_thread(desk.engine, lambda machine: machine.reserve(T0))
    as_fetch_thread(desk.engine, lambda machine: machine.on_landed(T0, len(batch)))
    part = memoryview(answer)[: len(batch)]
    as_fetch_thread(
        desk.engine, lambda machine: machine.on_fetched(FetchedPartition(T0, 0, 1, 1, 1, 0, part), order.token)
    )
    part.release()
    answer.clear()  # a bytearray that is still viewed refuses this
    assert desk.offsets() == [0]


def test_error_of_the_membership_reaches_whoever_asks() -> None:
    desk = Desk()
    desk.start(0, 0)
    desk.bring(0, [b"a"])
    desk.engine.on_events([Failed(OttlaError("the group is no more"))])
    for _ in range(2):
        with pytest.raises(OttlaError, match="the group is no more"):
            next(desk.streams[0])
    with pytest.raises(OttlaError, match="the group is no more"):
        desk.streams[0].commit()


def test_close_ends_streams_and_gives_back_what_was_passed() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    stream: MessageStream[bytes, bytes] = desk.streams[0]
    iterator = iter(stream)
    assert [next(iterator).offset for _ in range(2)] == [0, 1]
    desk.engine.begin_close(closer=0)
    assert desk.membership.has_been_left
    assert list(iterator) == []
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 2)]
    desk.release(0, claim)
    with pytest.raises(ConsumerClosed):
        stream.commit()


def test_thread_that_closes_does_not_wait_for_itself() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    next(desk.streams[0])
    desk.engine.begin_close(closer=threading.get_ident())
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 0)]


def test_commit_in_the_middle_of_a_release_counts_for_the_release_without_automatic_commits() -> None:
    desk = Desk(enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    message = next(desk.streams[0])
    desk.revoke(0, claim)
    desk.streams[0].commit(message, wait=False)
    assert desk.membership.stopped == [(T0, claim, 1)]


@pytest.mark.parametrize("is_lost", [False, True])
def test_commit_in_the_middle_of_a_release_has_the_outcome_of_the_release(*, is_lost: bool) -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    message = next(desk.streams[0])
    desk.revoke(0, claim)
    desk.engine.mark_done(desk.buffers[0], T0, message.offset)
    outcome = desk.engine.commit(desk.buffers)
    assert not outcome.is_known
    if is_lost:
        desk.lose(0, claim)
        with pytest.raises(CommitFailed, match="t-0 was lost to the group"):
            desk.engine.wait_for(outcome, 0)
    else:
        desk.release(0, claim)
        desk.engine.wait_for(outcome, 0)


def test_commit_with_a_message_in_hand_does_not_wait_for_the_release_that_waits_for_it() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    next(desk.streams[0])
    desk.revoke(0, claim)
    desk.streams[0].commit(timeout_ms=0)
    assert desk.membership.stopped == []


def test_message_that_is_in_hand_when_another_thread_closes_can_be_committed() -> None:
    desk = Desk(enable_auto_commit=False)
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 5)
    message = next(desk.streams[0])
    desk.engine.begin_close(closer=0)
    desk.streams[0].commit(message, wait=False)
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 1)]


def test_group_is_left_when_a_thread_of_the_connector_has_failed() -> None:
    desk = Desk()
    claim = desk.start(0, 0)
    desk.bring(0, [b"a"] * 2)
    desk.offsets()
    desk.engine.on_failure(OttlaError("the fetch thread failed"))
    with pytest.raises(OttlaError, match="the fetch thread failed"):
        next(desk.streams[0])
    desk.engine.begin_close(closer=0)
    assert desk.membership.has_been_left, "else the others wait for the end of its session"
    desk.revoke(0, claim)
    assert desk.membership.stopped == [(T0, claim, 2)]
