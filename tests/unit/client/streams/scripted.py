"""A connector's engine without threads: the membership says what a test says, and fetches are put by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.client.groups.group_types import GroupMetadata
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import OnEvents
from ottla.client.streams.consume_machine import ConsumeMachine, FetchOrder
from ottla.client.streams.engine import StreamsEngine
from ottla.client.streams.message_run import Deserializers, message_runs
from ottla.client.streams.message_stream import MessageStream
from ottla.client.streams.settings import StreamSettings
from ottla.client.streams.stream_buffer import Prefetched, StreamBuffer
from ottla.consumers.effects import Committed, Lost, Released, Revoke, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.fake_clock import FakeClock

T = TypeVar("T")

FOREVER_MS = 2**53


def batch_of(first_offset: int, values: Iterable[bytes | None]) -> bytes:
    rows = enumerate(values)
    return bytes(build_batch([Record(n, 1_000, None, value) for n, value in rows], base_offset=first_offset))


def fetched(partition: TopicPartition, offset: int, next_offset: int, records: bytes) -> FetchedPartition:
    return FetchedPartition(partition, offset, next_offset, next_offset, next_offset, 0, memoryview(records))


def as_fetch_thread(engine: StreamsEngine, call: Callable[[ConsumeMachine], T]) -> T:
    with engine.locked() as machine:
        return call(machine)


class ScriptedMembership:
    """Notes its calls."""

    def __init__(self) -> None:
        self.hand_out_until_ms = FOREVER_MS
        self.member: GroupMetadata | None = GroupMetadata("g", 3, "member")
        self.committed: list[tuple[TopicPartition, ClaimId, int]] = []
        self.stopped: list[tuple[TopicPartition, ClaimId, int]] = []
        self.has_been_left = False

    def group_metadata(self) -> GroupMetadata | None:
        return self.member

    def join(self, subscription: Subscription, on_events: OnEvents) -> None: ...

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        self.committed.extend(offsets)

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        self.stopped.append((partition, claim, offset))

    def leave(self) -> None:
        self.has_been_left = True

    def close(self) -> None: ...


class Desk:
    """Streams of a connector that does not wait: a stream ends where nothing is there."""

    def __init__(
        self,
        streams_count: int = 1,
        *,
        deserializer: Callable[[bytes], Any] | None = None,
        on_orders: Callable[[], None] = lambda: None,
        **settings: Any,
    ) -> None:
        self.clock = FakeClock()
        self.membership = ScriptedMembership()
        settings = {"stream_buffer_bytes": 1 << 20, "consumer_timeout_ms": 0} | settings
        self.settings = StreamSettings(**settings)
        open_batch = partial(message_runs, deserializers=Deserializers(None, deserializer), check_crc=True)
        self.buffers = [
            StreamBuffer(f"t-{n}", Prefetched(self.settings.stream_buffer_bytes, 1 << 16), open_batch)
            for n in range(streams_count)
        ]
        self.engine = StreamsEngine(
            self.membership,
            self.settings,
            self.buffers,
            lambda _, stream: self.buffers[stream.number],
            self.clock,
            on_orders=on_orders,
        )
        self.streams: list[MessageStream[Any, Any]] = [
            MessageStream(self.engine, buffer, ["t"], self.settings.consumer_timeout_ms, None)
            for buffer in self.buffers
        ]
        self.orders: dict[TopicPartition, FetchOrder | None] = {}
        self._claims_count = 0

    def start(self, partition: int, offset: int = NO_OFFSET, *, stream: int = 0) -> ClaimId:
        self._claims_count += 1
        claim = ClaimId(1, self._claims_count)
        self.engine.on_events([Start(TopicPartition("t", partition), StreamId("c", stream), offset, claim, FOREVER_MS)])
        return claim

    def revoke(self, partition: int, claim: ClaimId) -> None:
        self.engine.on_events([Revoke(TopicPartition("t", partition), claim)])

    def release(self, partition: int, claim: ClaimId) -> None:
        """As the group does it after the partition has stopped."""
        offset = next(offset for _, each, offset in self.membership.stopped if each == claim)
        self.engine.on_events([Released(TopicPartition("t", partition), claim, offset)])

    def lose(self, partition: int, claim: ClaimId) -> None:
        self.engine.on_events([Lost(TopicPartition("t", partition), claim)])

    def confirm(self, partition: int, claim: ClaimId, offset: int) -> None:
        self.engine.on_events([Committed(TopicPartition("t", partition), claim, offset)])

    def order(self, partition: int) -> FetchOrder | None:
        """The fetch order of a partition, as the fetch thread knows it."""
        self.orders.update(as_fetch_thread(self.engine, lambda machine: machine.take_orders()))
        return self.orders.get(TopicPartition("t", partition))

    def answer(self, partition: int, offset: int) -> None:
        """The log says where the place is that was asked for."""
        order = self.order(partition)
        assert order is not None
        as_fetch_thread(
            self.engine, lambda machine: machine.on_place(TopicPartition("t", partition), order.token, offset)
        )

    def bring(self, partition: int, values: Iterable[bytes | None], offset: int | None = None) -> bool:
        """A fetch of these, as one batch from what was ordered on; False when there is no room for it."""
        order = self.order(partition)
        assert order is not None
        offset = order.offset if offset is None else offset
        values = list(values)
        return self.bring_records(partition, offset, offset + len(values), batch_of(offset, values))

    def bring_records(self, partition: int, offset: int, next_offset: int, records: bytes) -> bool:
        return self.bring_fetched(fetched(TopicPartition("t", partition), offset, next_offset, records))

    def bring_fetched(self, found: FetchedPartition) -> bool:
        key = found.partition
        order = self.order(key.partition)
        assert order is not None
        if not as_fetch_thread(self.engine, lambda machine: machine.reserve(key)):
            return False
        as_fetch_thread(self.engine, lambda machine: machine.on_landed(key, len(found.records)))
        as_fetch_thread(self.engine, lambda machine: machine.on_fetched(found, order.token))
        return True

    def offsets(self, stream: int = 0) -> list[int]:
        """All that is there; the last one is passed, too."""
        return [message.offset for message in self.streams[stream]]
