"""Any order of fetches, polls, pauses, seeks, commits, rebalances: nothing is skipped, or committed early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.streams.rebalance_changes import Changes
from ottla.client.streams.seek_target import target_of
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import TopicPartition
from tests.property.property_settings import example_settings
from tests.unit.client.streams.test_polled_stream import PolledDesk

PARTITIONS = 3
LOG_END = 60


class Polled:
    """A consumer of three partitions of a log whose values are their offsets; and the events of each claim."""

    def __init__(self) -> None:
        self.desk = PolledDesk(notifies=True, stream_buffer_bytes=2_000, auto_commit_interval_ms=1_000)
        self.desk.on_changes = self._on_changes
        self.claims: dict[int, ClaimId] = {}
        self.revoked: set[int] = set()
        # What the user's code was notified of.
        self.announced: set[int] = set()
        self.paused: set[int] = set()
        # For each claim: the next offset to return, and everything below is processed.
        self.next: dict[ClaimId, int] = {}
        self.past: dict[ClaimId, int] = {}
        # The group's committed offset.
        self.committed = [0] * PARTITIONS
        self.known: set[tuple[TopicPartition, ClaimId, int]] = set()
        self.fetched: dict[tuple[int, int], int] = {}
        self.commits_in_callback = False

    def _on_changes(self, changes: Changes) -> None:
        for partition in (*changes.lost, *changes.revoked):
            assert partition.partition in self.announced, "nothing ends for the user's code that did not start"
            self.announced.remove(partition.partition)
        for partition in changes.assigned:
            assert partition.partition not in self.announced
            self.announced.add(partition.partition)
        if self.commits_in_callback:
            self.commit(0, 0)

    def start(self, partition: int, number: int) -> None:
        if partition not in self.claims:
            claim = self.desk.start(partition, self.committed[partition])
            self.claims[partition] = claim
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

    def poll(self, partition: int, number: int) -> None:
        for _ in range(1 + number % 5):
            self._pass_all()
            message = self.desk.stream.poll(0)
            if message is not None:
                self._on_message(message.partition, message.offset, message.value)

    def poll_many(self, partition: int, number: int) -> None:
        self._pass_all()
        messages = self.desk.stream.poll_many(1 + number, 0)
        assert len(messages) <= 1 + number
        for message in messages:
            self._on_message(message.partition, message.offset, message.value)

    def _pass_all(self) -> None:
        """A request is made: what was returned before it is processed."""
        for claim in self.claims.values():
            self.past[claim] = max(self.past[claim], self.next[claim])

    def _on_message(self, partition: int, offset: int, value: bytes | None) -> None:
        claim = self.claims[partition]
        assert partition not in self.revoked | self.paused
        assert partition in self.announced, "an assignment is announced before its first message"
        assert offset == self.next[claim], "in order, and nothing is left out"
        assert value == b"%d" % offset
        self.next[claim] = offset + 1

    def pause(self, partition: int, number: int) -> None:
        if self._is_live(partition):
            self.desk.engine.pause(self.desk.buffer, [TopicPartition("t", partition)])
            self.paused.add(partition)

    def resume(self, partition: int, number: int) -> None:
        if partition in self.paused:
            self.desk.engine.resume(self.desk.buffer, [TopicPartition("t", partition)])
            self.paused.remove(partition)

    def _is_live(self, partition: int) -> bool:
        return partition in self.claims and partition not in self.revoked

    def seek(self, partition: int, number: int) -> None:
        if self._is_live(partition):
            claim = self.claims[partition]
            self.desk.engine.seek(self.desk.buffer, [TopicPartition("t", partition)], target_of(number, None))
            self.next[claim] = self.past[claim] = number
            self._check_reported()

    def commit(self, partition: int, number: int) -> None:
        self._pass_all()
        self.desk.engine.commit_all(self.desk.buffer)

    def time_passes(self, partition: int, number: int) -> None:
        self.desk.clock.advance(30 * number)
        self.desk.engine.on_time()

    def revoke(self, partition: int, number: int) -> None:
        if self._is_live(partition):
            self.revoked.add(partition)
            self.paused.discard(partition)
            self.desk.revoke(partition, self.claims[partition])

    def release(self, partition: int, number: int) -> None:
        """As soon as the consumer has reported its stop."""
        if partition in self.revoked:
            claim = self.claims[partition]
            reported = [offset for _, each, offset in self.desk.membership.stopped if each == claim]
            if reported:
                self.committed[partition] = reported[0]
                self.desk.release(partition, claim)
                self._ended(partition)

    def lose(self, partition: int, number: int) -> None:
        if partition in self.claims:
            self.desk.lose(partition, self.claims[partition])
            self._ended(partition)

    def _ended(self, partition: int) -> None:
        del self.claims[partition]
        self.revoked.discard(partition)
        self.paused.discard(partition)

    def check(self) -> None:
        self._check_reported()
        assert self.desk.buffer.prefetched.waiting_bytes <= 2_000 + 1_000

    def _check_reported(self) -> None:
        """Nothing was committed or released that was not processed."""
        reported = {*self.desk.membership.committed, *self.desk.membership.stopped}
        for partition, claim, offset in reported - self.known:
            assert offset <= self.past[claim], (partition, claim, offset)
        # A seek back lowers the processed offset: earlier reports were correct at their time.
        self.known = reported

    def read_to_the_end(self) -> None:
        """What is assigned now comes whole."""
        for partition in list(self.paused):
            self.resume(partition, 0)
        for _ in range(PARTITIONS * LOG_END):
            for partition in range(PARTITIONS):
                self.fetch(partition, 11)
            self.poll_many(0, LOG_END)
        for partition, claim in self.claims.items():
            assert partition in self.revoked or self.next[claim] == LOG_END


# The more often, the more messages are unprocessed at other events.
ACTIONS = ["fetch"] * 5 + ["poll"] * 4 + ["poll_many"] * 4 + ["commit"] * 2 + ["start"] * 2 + ["pause", "resume"] * 2
ACTIONS += ["seek", "time_passes", "revoke", "revoke", "release", "release", "lose"]


@example_settings(200)
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, PARTITIONS - 1), st.integers(0, LOG_END))),
    st.booleans(),
)
def test_a_consumer_returns_all_in_order_and_commits_processed_messages(
    actions: list[tuple[str, int, int]], commits_in_callback: bool
) -> None:
    polled = Polled()
    polled.commits_in_callback = commits_in_callback
    for partition in range(PARTITIONS):
        polled.start(partition, partition)
        polled.fetch(partition, 11)
    for name, partition, number in actions:
        getattr(polled, name)(partition, number)
        polled.check()
    polled.read_to_the_end()
