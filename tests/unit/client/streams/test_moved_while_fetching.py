"""A partition goes to another stream of its consumer while a fetch of it is in flight: nothing is left out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice

from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import OnEvents
from ottla.client.streams.engine import StreamsEngine
from ottla.client.streams.message_run import Deserializers, message_runs
from ottla.client.streams.settings import StreamSettings
from ottla.client.streams.stream_buffer import Prefetched, StreamBuffer
from ottla.consumers.effects import Released, Revoke, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import MIB
from ottla.records.builder import BatchBuilder
from ottla.testing.fake_clock import FakeClock
from tests.unit.client.streams.scripted import as_fetch_thread

PARTITION = TopicPartition("t", 0)
FIRST, SECOND = ClaimId(1, 1), ClaimId(1, 2)
FOREVER_MS = 2**53


class TellingMembership:
    """Notes the reported stops."""

    hand_out_until_ms = FOREVER_MS

    def __init__(self) -> None:
        self.stopped: list[tuple[ClaimId, int]] = []

    def group_metadata(self) -> None: ...

    def join(self, subscription: Subscription, on_events: OnEvents) -> None: ...

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None: ...

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        self.stopped.append((claim, offset))

    def leave(self) -> None: ...

    def close(self) -> None: ...


def fetched(offset: int) -> FetchedPartition:
    """One message."""
    builder = BatchBuilder()
    builder.append(1_000, None, b"%d" % offset)
    batch = bytearray(builder.build())
    batch[:8] = offset.to_bytes(8, "big")
    return FetchedPartition(PARTITION, offset, offset + 1, offset + 1, offset + 1, 0, memoryview(batch))


def test_what_was_fetched_for_the_former_stream_is_fetched_again_for_the_next_one() -> None:
    settings = StreamSettings()
    open_batch = partial(message_runs, deserializers=Deserializers(None, None), check_crc=False)
    buffers = [StreamBuffer(f"t-{number}", Prefetched(MIB, MIB), open_batch) for number in range(2)]
    membership = TellingMembership()
    engine = StreamsEngine(membership, settings, buffers, lambda _, stream: buffers[stream.number], FakeClock())
    first, second = (StreamId("c", number) for number in range(2))

    engine.on_events([Start(PARTITION, first, 100, FIRST, FOREVER_MS)])
    (ordered,) = as_fetch_thread(engine, lambda machine: machine.take_orders()).values()
    assert ordered is not None
    assert as_fetch_thread(engine, lambda machine: machine.reserve(PARTITION)) > 0, "a fetch from 100 takes off"
    engine.on_events([Revoke(PARTITION, FIRST)])
    assert membership.stopped == [(FIRST, 100)]
    engine.on_events([Released(PARTITION, FIRST, 100), Start(PARTITION, second, 100, SECOND, FOREVER_MS)])
    (ordered,) = as_fetch_thread(engine, lambda machine: machine.take_orders()).values()
    assert ordered is not None
    assert ordered.offset == 100
    # The fetch from 100 lands.  To the fetcher it is what was ordered: it continues from 101.
    landed = fetched(100)
    as_fetch_thread(engine, lambda machine: machine.on_landed(PARTITION, len(landed.records)))
    as_fetch_thread(engine, lambda machine: machine.on_fetched(landed, ordered.token))

    (again,) = as_fetch_thread(engine, lambda machine: machine.take_orders()).values()
    assert again is not None
    assert again.offset == 100
    as_fetch_thread(engine, lambda machine: machine.reserve(PARTITION))
    as_fetch_thread(engine, lambda machine: machine.on_landed(PARTITION, len(landed.records)))
    as_fetch_thread(engine, lambda machine: machine.on_fetched(landed, again.token))
    hand_out = engine.next_hand_out(buffers[1])
    assert hand_out is not None
    assert [message.offset for run in hand_out.take_runs() for message in islice(run.messages, 1)] == [100]
