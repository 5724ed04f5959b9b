"""Any order of starts, fetches, requests, seeks, commits and revocations: nothing is skipped or committed early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import TopicPartition
from tests.property.property_settings import example_settings
from tests.unit.client.streams.scripted import Desk

PARTITIONS = 3
LOG_END = 60


class Streams:
    """Two streams over three partitions of a log whose values are their offsets; and the events of each claim."""

    def __init__(self) -> None:
        self.desk = Desk(streams_count=2, stream_buffer_bytes=2_000, auto_commit_interval_ms=1_000)
        self.claims: dict[int, tuple[ClaimId, int]] = {}
        self.revoked: set[int] = set()
        # For each claim: the next offset to hand out, and the processed offset.
        self.next: dict[ClaimId, int] = {}
        self.past: dict[ClaimId, int] = {}
        # The group's committed offset.
        self.committed = [0] * PARTITIONS
        # The last message of each stream, not processed yet.
        self.in_hand: list[tuple[ClaimId, int] | None] = [None, None]
        self.known: set[tuple[TopicPartition, ClaimId, int]] = set()
        self.fetched: dict[tuple[int, int], int] = {}

    def start(self, partition: int, number: int) -> None:
        stream = number % 2
        if partition not in self.claims:
            claim = self.desk.start(partition, self.committed[partition], stream=stream)
            self.claims[partition] = (claim, stream)
            self.next[claim] = self.past[claim] = self.committed[partition]

    def fetch(self, partition: int, number: int) -> None:
        count = 1 + number % 12
        order = self.desk.order(partition)
        if order is None:
            return
        first = self.fetched.get((partition, order.token), order.offset)
        values = [b"%d" % offset for offset in range(first, min(LOG_END, first + count))]
        if values and self.desk.bring(partition, values, offset=first):
            self.fetched[partition, order.token] = first + len(values)

    def ask(self, partition: int, number: int) -> None:
        stream = partition % 2
        for _ in range(1 + number % 5):
            message = next(self.desk.streams[stream], None)
            self._ask_past(stream)
            if message is None:
                return
            claim, owner = self.claims[message.partition]
            assert owner == stream
            assert message.partition not in self.revoked, "nothing is handed out of what was revoked"
            assert message.offset == self.next[claim], "in order, and nothing is left out"
            assert message.value == b"%d" % message.offset
            self.next[claim] = message.offset + 1
            self.in_hand[stream] = (claim, message.offset)

    def _ask_past(self, stream: int) -> None:
        if (held := self.in_hand[stream]) is not None:
            claim, offset = held
            self.past[claim] = max(self.past[claim], offset + 1)
            self.in_hand[stream] = None

    def seek(self, partition: int, number: int) -> None:
        offset = number
        if partition in self.claims and partition not in self.revoked:
            claim, stream = self.claims[partition]
            self.desk.streams[stream].seek(partition, offset)
            self.next[claim] = self.past[claim] = offset
            if (held := self.in_hand[stream]) is not None and held[0] == claim:
                self.in_hand[stream] = None
            self._check_told()

    def commit(self, partition: int, number: int) -> None:
        self.desk.streams[number % 2].commit(wait=False)

    def time_passes(self, partition: int, number: int) -> None:
        self.desk.clock.advance(30 * number)
        self.desk.engine.on_time()

    def revoke(self, partition: int, number: int) -> None:
        if partition in self.claims and partition not in self.revoked:
            self.revoked.add(partition)
            self.desk.revoke(partition, self.claims[partition][0])

    def release(self, partition: int, number: int) -> None:
        """As soon as the stream has reported its stop."""
        if partition in self.revoked:
            claim, _ = self.claims[partition]
            said = [offset for _, each, offset in self.desk.membership.stopped if each == claim]
            if said:
                self.committed[partition] = said[0]
                self.desk.release(partition, claim)
                self._ended(partition)

    def lose(self, partition: int, number: int) -> None:
        if partition in self.claims:
            self.desk.lose(partition, self.claims[partition][0])
            self._ended(partition)

    def _ended(self, partition: int) -> None:
        del self.claims[partition]
        self.revoked.discard(partition)

    def pause(self, partition: int, number: int) -> None:
        """The lease ends, and is renewed."""
        until_ms, self.desk.membership.hand_out_until_ms = self.desk.membership.hand_out_until_ms, 0
        for stream in range(2):
            for reading in self.desk.buffers[stream].readings.values():
                if reading.hand_out is not None:
                    reading.hand_out.until_ns = 0
            assert next(self.desk.streams[stream], None) is None
            self._ask_past(stream)
        self.desk.membership.hand_out_until_ms = until_ms

    def check(self) -> None:
        self._check_told()
        for buffer in self.desk.buffers:
            assert buffer.prefetched.waiting_bytes <= 2_000 + 1_000

    def _check_told(self) -> None:
        """Nothing was committed or released that was not processed."""
        told = {*self.desk.membership.committed, *self.desk.membership.stopped}
        for partition, claim, offset in told - self.known:
            assert offset <= self.past[claim], (partition, claim, offset)
        # A seek back lowers the processed offset: earlier reports were correct at their time.
        self.known = told


# The more often, the more messages are unprocessed at other events.
ACTIONS = ["fetch"] * 4 + ["ask"] * 6 + ["commit"] * 2 + ["start"] * 2
ACTIONS += ["seek", "time_passes", "revoke", "revoke", "release", "release", "lose", "pause"]


@example_settings(200)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, PARTITIONS - 1), st.integers(0, LOG_END))))
def test_streams_hand_out_in_order_and_commit_processed_messages(actions: list[tuple[str, int, int]]) -> None:
    streams = Streams()
    for partition in range(PARTITIONS):
        streams.start(partition, partition)
        streams.fetch(partition, 11)
    for name, partition, number in actions:
        getattr(streams, name)(partition, number)
        streams.check()
