"""The fetcher of one leader: real partitions over logs in memory; the leader's answers are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from ottla.broker.partitions.follower_log import FollowerLog
from ottla.broker.replicas import replica_fetcher
from ottla.broker.replicas.peer_connection import PeerLost, PeerRefused, PeerTimedOut
from ottla.broker.replicas.replica_fetcher import FetcherContext, FetcherLimits, FetcherTotals, ReplicaFetcher
from ottla.broker.replicas.replica_fetchers import CUTS_MAX
from ottla.broker.replicas.replication_throttle import ReplicationThrottle
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import FetchRequest, FetchResponseWriter, read_fetch
from ottla.protocol.frame import read_response_header
from ottla.protocol.replica_fetch import REPLICA_FETCH_VERSION
from ottla.replication.following import FollowerStep
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.offload import Offload
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated
from tests.unit.broker.served_log import ServedLog

EPOCH = 3
SESSION = 77
LIMITS = FetcherLimits(
    wait_max_ms=500,
    min_bytes=1,
    partition_max_bytes=1 << 20,
    response_max_bytes=10 << 20,
    backoff_ms=1,
    socket_timeout_ms=30_000,
)
BOTH = one_of(HERE, ELSEWHERE)


class Part:
    """One partition's part of an answer."""

    def __init__(
        self,
        follower: Follower,
        records: bytes = b"",
        *,
        error: ErrorCode = ErrorCode.NONE,
        high_watermark: int = 0,
        diverging: tuple[int, int] | None = None,
    ) -> None:
        self.follower = follower
        self.records = records
        self.error = error
        self.high_watermark = high_watermark
        self.diverging = diverging


class Asked:
    """A request that the leader has received; the test answers it once."""

    def __init__(self, request: FetchRequest, timeout_ms: int) -> None:
        self.request = request
        self.timeout_ms = timeout_ms
        self.body: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

    @property
    def offsets(self) -> dict[bytes, tuple[int, int]]:
        """Leader epoch and fetch offset by topic id: each topic has one partition here."""
        return {topic_id: fetches[0][1:3] for topic_id, fetches in self.request.topics}

    def answer(self, *parts: Part, session_id: int = SESSION, error: int = 0) -> None:
        writer: FetchResponseWriter[bytes] = FetchResponseWriter(
            1, REPLICA_FETCH_VERSION, topics_count=len(parts), session_id=session_id, error_code=error
        )
        for part in parts:
            writer.topic(part.follower.log.topic_id.bytes, 1)
            writer.partition(
                0,
                part.error,
                part.high_watermark,
                -1,
                0,
                diverging=part.diverging,
                records=part.records or None,
                records_length=len(part.records),
            )
        frame = b"".join(writer.finish())
        _, position = read_response_header(ApiKey.FETCH, REPLICA_FETCH_VERSION, frame, 4, len(frame))
        self.body.set_result(memoryview(frame)[position:])


class Leader:
    """The leader's end of every connection: keeps the requests until the test answers them."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._now: Asked | None = None
        self.connections_count = 0
        self.closed_count = 0
        self.failures: list[Exception] = []

    async def connect(self, leader_id: NodeId) -> Leader:
        assert leader_id == ELSEWHERE
        if self.failures:
            raise self.failures.pop(0)
        self.connections_count += 1
        return self

    async def call(self, api: ApiKey, version: int, body: bytes, timeout_ms: int) -> memoryview:
        assert (api, version) == (ApiKey.FETCH, REPLICA_FETCH_VERSION)
        self._now = Asked(read_fetch(bytearray(body), 0, len(body), version), timeout_ms)
        self._asked.put_nowait(self._now)
        return await self._now.body

    def interrupt(self) -> None:
        assert self._now is not None
        if not self._now.body.done():
            self._now.body.set_exception(PeerTimedOut("interrupted"))

    def close(self) -> None:
        self.closed_count += 1

    async def asked(self) -> Asked:
        async with asyncio.timeout(10):
            return await self._asked.get()


class Follower(ServedLog):
    """A log here whose partition follows `ELSEWHERE`."""

    def __init__(self, name: str, config: LogConfig | None = None) -> None:
        super().__init__(name, leader_epoch=None, config=config)
        self.version = 0
        self.follow(EPOCH)

    def follow(self, leader_epoch: int, leader: NodeId = ELSEWHERE) -> None:
        self.version += 1
        self.partition.on_state(replicated(leader, leader_epoch, self.version), BOTH, 0)

    @property
    def key(self) -> bytes:
        return self.log.topic_id.bytes


class Setup:
    """A fetcher that runs, its leader, and the flushes of this broker's disk."""

    def __init__(self, clock: Clock | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.leader = Leader()
        self.flushes = FlushSignal(loop)
        self.followers: list[Follower] = []
        self.holds_flushes = False
        self._is_marked = False
        self._marked = asyncio.Event()
        self.flushes_count = 0
        self.totals = FetcherTotals()
        self.refused: list[NodeId] = []
        self.failed: list[TopicPartition] = []
        self.broker_epoch = 10
        self.loop = loop
        self.throttle = ReplicationThrottle(HERE)
        context = FetcherContext(
            HERE,
            lambda: self.broker_epoch,
            self.leader.connect,
            self.flushes,
            clock or SystemClock(),
            LIMITS,
            self.throttle,
            Random(1),
            self.totals,
            self.refused.append,
            lambda partition: self.failed.append(partition.topic_partition),
            lambda partition: self.fetcher.add(partition),
            asyncio.Semaphore(CUTS_MAX),
        )
        self.fetcher = ReplicaFetcher(ELSEWHERE, context, loop)

    def follower(self, name: str, config: LogConfig | None = None) -> Follower:
        return self.fetch(Follower(name, config))

    def fetch(self, follower: Follower) -> Follower:
        self.followers.append(follower)
        follower.directory.scheduler.watch(self._on_marked)
        if follower.directory.scheduler.next_due_ms(0) is not None:
            self._on_marked()
        self.fetcher.add(follower.partition)
        return follower

    async def waits_for_flush(self) -> None:
        async with asyncio.timeout(10):
            await self._marked.wait()

    def _on_marked(self) -> None:
        self._marked.set()
        if not self._is_marked and not self.holds_flushes:
            self._is_marked = True
            self.loop.call_soon(self.flush)

    def flush(self, error: OSError | None = None) -> None:
        """All logs of this broker become stable, unless the disk fails."""
        self._is_marked = False
        self.flushes_count += 1
        if error is None:
            for follower in self.followers:
                follower.become_stable()
        self.flushes.on_flushed(error)


@asynccontextmanager
async def fetching(*names: str, clock: Clock | None = None) -> AsyncIterator[tuple[Setup, list[Follower]]]:
    """A fetcher of partitions with these names."""
    setup = Setup(clock)
    followers = [setup.follower(name) for name in names]
    setup.fetcher.start()
    try:
        yield setup, followers
    finally:
        task = setup.fetcher.stop()
        await asyncio.wait([task])
        assert task.cancelled(), "it ended uncancelled"


def batches(count: int, first: int = 0, epoch: int = EPOCH) -> bytes:
    """What a leader sends: batches of one record each, from `first` on."""
    source = ServedLog("source", leader_epoch=epoch)
    for _ in range(first + count):
        source.add()
    return b"".join(source.batches[first:])


async def test_first_fetch_names_the_position_and_the_life_of_this_broker() -> None:
    async with fetching("t") as (setup, (t,)):
        asked = await setup.leader.asked()
        request = asked.request
        assert (request.replica_id, request.replica_epoch) == (HERE, 10)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
        assert asked.timeout_ms == 30_000
        assert request.topics == [(t.key, [(0, EPOCH, 0, -1, 0, 1 << 20)])]


async def test_records_are_appended_flushed_and_then_reported() -> None:
    async with fetching("t") as (setup, (t,)):
        setup.holds_flushes = True
        (await setup.leader.asked()).answer(Part(t, batches(3), high_watermark=2))
        await setup.waits_for_flush()
        for _ in range(10):
            await asyncio.sleep(0)
        # The leader takes the next offset for stable: it must not be sent before.
        assert setup.leader._asked.empty()
        setup.flush()
        asked = await setup.leader.asked()
        assert asked.request.session_epoch == 1
        assert asked.offsets == {t.key: (EPOCH, 3)}
        assert asked.request.topics[0][1][0][3] == EPOCH, "the last fetched epoch"
        assert b"".join(t.batches) == batches(3)
        assert t.partition.high_watermark == 2


async def test_one_flush_covers_the_partitions_of_a_response() -> None:
    async with fetching("a", "b", "c") as (setup, (a, b, c)):
        (await setup.leader.asked()).answer(Part(a, batches(1)), Part(b, batches(2)), Part(c, batches(3)))
        asked = await setup.leader.asked()
        assert asked.offsets == {a.key: (EPOCH, 1), b.key: (EPOCH, 2), c.key: (EPOCH, 3)}
        assert setup.flushes_count == 1


async def test_later_fetches_of_a_session_name_what_moved() -> None:
    async with fetching("a", "b") as (setup, (a, b)):
        (await setup.leader.asked()).answer(Part(a), Part(b))
        asked = await setup.leader.asked()
        assert (asked.request.session_id, asked.request.session_epoch, asked.offsets) == (SESSION, 1, {})
        asked.answer(Part(b, batches(1)))
        asked = await setup.leader.asked()
        assert (asked.request.session_epoch, asked.offsets) == (2, {b.key: (EPOCH, 1)})


async def test_flush_of_others_does_not_end_the_wait_for_ours() -> None:
    async with fetching("t") as (setup, (t,)):
        setup.holds_flushes = True
        (await setup.leader.asked()).answer(Part(t, batches(1)))
        await setup.waits_for_flush()
        for _ in range(5):
            setup.flushes.on_flushed(None)
            await asyncio.sleep(0)
        assert setup.leader._asked.empty()
        setup.flush()
        assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 1)}


async def test_diverging_history_is_cut_and_fetched_again() -> None:
    async with fetching() as (setup, _):
        t = Follower("t")
        t.log.append_run(memoryview(batches(4, epoch=1)), 0)
        t.become_stable()
        setup.fetch(t)
        asked = await setup.leader.asked()
        assert asked.offsets == {t.key: (EPOCH, 4)}
        asked.answer(Part(t, diverging=(1, 2)))
        assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 2)}
        assert t.log.log_end_offset == 2


class HeldCuts:
    """Cuts that end when the test lets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Semaphore(0)
        self._cut = FollowerLog.cut
        monkeypatch.setattr(FollowerLog, "cut", lambda followed, step, offload: self.cut(followed, step, offload))

    async def cut(self, followed: FollowerLog, step: FollowerStep, offload: Offload) -> None:
        self.begun.append(followed._log.topic_partition.topic)
        async with asyncio.timeout(5):
            await self.may_end.acquire()
        await self._cut(followed, step, offload)


def diverging_followers(setup: Setup, names: str) -> list[Follower]:
    followers = []
    for name in names:
        follower = Follower(name)
        follower.log.append_run(memoryview(batches(4, epoch=1)), 0)
        follower.become_stable()
        followers.append(setup.fetch(follower))
    return followers


async def next_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_few_logs_are_cut_at_once_and_the_rest_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = HeldCuts(monkeypatch)
    async with fetching() as (setup, _):
        followers = diverging_followers(setup, "abcde")
        asked = await setup.leader.asked()
        asked.answer(*(Part(each, diverging=(1, 2)) for each in followers))
        await next_turns()
        assert (CUTS_MAX, cuts.begun) == (2, ["a", "b"])
        # It is not fetched meanwhile, though its log takes records until then.
        setup.fetcher.add(followers[4].partition)
        await next_turns()
        assert setup.leader._asked.empty()
        cuts.may_end.release()
        assert (await setup.leader.asked()).offsets.keys() <= {each.key for each in followers[:2]}
        await next_turns()
        assert cuts.begun == ["a", "b", "c"]
        for _ in followers[1:]:
            cuts.may_end.release()
        async with asyncio.timeout(10):
            while setup.fetcher._cuts.tasks:
                await asyncio.wait(setup.fetcher._cuts.tasks)
        assert sorted(cuts.begun) == list("abcde")
        assert [each.log.log_end_offset for each in followers] == [2] * 5


async def test_cut_that_waited_is_not_made_for_another_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = HeldCuts(monkeypatch)
    async with fetching() as (setup, _):
        followers = diverging_followers(setup, "abc")
        (await setup.leader.asked()).answer(*(Part(each, diverging=(1, 2)) for each in followers))
        await next_turns()
        c = followers[2]
        c.follow(EPOCH + 1)
        setup.fetcher.add(c.partition)
        for _ in followers:
            cuts.may_end.release()
        async with asyncio.timeout(10):
            while setup.fetcher._cuts.tasks:
                await asyncio.wait(setup.fetcher._cuts.tasks)
        assert cuts.begun == ["a", "b"]
        assert c.log.log_end_offset == 4
        async with asyncio.timeout(10):
            asked = await setup.leader.asked()
            while c.key not in asked.offsets:
                asked.answer()
                asked = await setup.leader.asked()
        assert asked.offsets[c.key] == (EPOCH + 1, 4)


async def test_partition_whose_waiting_cut_is_void_is_fetched_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = HeldCuts(monkeypatch)
    async with fetching() as (setup, _):
        followers = diverging_followers(setup, "abc")
        (await setup.leader.asked()).answer(*(Part(each, diverging=(1, 2)) for each in followers))
        await next_turns()
        c = followers[2]
        c.follow(EPOCH + 1)
        setup.fetcher.add(c.partition)
        asked = await setup.leader.asked()
        assert asked.offsets == {c.key: (EPOCH + 1, 4)}
        assert cuts.begun == ["a", "b"], "both are being cut still"
        # The new leader's history diverges, too: this cut waits for its turn in place of the first.
        asked.answer(Part(c, diverging=(1, 3)))
        for _ in followers:
            cuts.may_end.release()
        async with asyncio.timeout(10):
            while setup.fetcher._cuts.tasks:
                await asyncio.wait(setup.fetcher._cuts.tasks)
        assert cuts.begun == ["a", "b", "c"]
        assert [each.log.log_end_offset for each in followers] == [2, 2, 3]


async def test_cuts_that_wait_are_given_up_by_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = HeldCuts(monkeypatch)
    async with fetching() as (setup, _):
        followers = diverging_followers(setup, "abcd")
        (await setup.leader.asked()).answer(*(Part(each, diverging=(1, 2)) for each in followers))
        await next_turns()
        ended = setup.fetcher.stop()
        cuts.may_end.release()
        cuts.may_end.release()
        async with asyncio.timeout(10):
            await asyncio.wait([ended])
        assert cuts.begun == ["a", "b"]
        assert [each.log.log_end_offset for each in followers] == [2, 2, 4, 4]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.STALE_BROKER_EPOCH,
    ],
)
async def test_refused_partition_pauses_and_the_others_go_on(error: ErrorCode) -> None:
    clock = FakeClock()
    async with fetching("a", "b", clock=clock) as (setup, (a, b)):
        (await setup.leader.asked()).answer(Part(a, error=error), Part(b, batches(1)))
        asked = await setup.leader.asked()
        assert asked.request.forgotten == [(a.key, [0])]
        assert asked.offsets == {b.key: (EPOCH, 1)}
        # It waits no longer than until the other may be asked for again.
        assert asked.request.max_wait_ms == 1
        clock.advance(1)
        asked.answer()
        asked = await setup.leader.asked()
        assert asked.offsets == {a.key: (EPOCH, 0)}
        assert asked.request.max_wait_ms == 500


async def test_partitions_that_one_answer_refuses_are_reported_together_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    async with fetching("a", "b", "c", clock=clock) as (setup, (a, b, _)):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for _ in range(2):
            (await setup.leader.asked()).answer(Part(a, error=error), Part(b, error=error))
            clock.advance(1_000)
        await setup.leader.asked()
    told = [
        vars(record)["ottla_facts"] for record in caplog.records if record.getMessage().endswith("partition_refused")
    ]
    first = a.partition.topic_partition
    assert told == [{"partition": first, "partitions_count": 2, "leader": ELSEWHERE, "reason": error.name}]


async def test_waits_between_refusals_grow_to_the_backoff_and_begin_anew_after_an_answer() -> None:
    context = Setup().fetcher._context._replace(limits=LIMITS._replace(backoff_ms=1_000))
    fetcher = ReplicaFetcher(ELSEWHERE, context, asyncio.get_running_loop())
    delays = [fetcher._delay_ms(count) for count in range(9)]
    for delay, full in zip(delays, (20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000), strict=True):
        assert 0.8 * full <= delay <= full


async def test_partition_whose_log_fails_is_dropped_and_the_others_go_on() -> None:
    async with fetching("a", "b") as (setup, (a, b)):
        asked = await setup.leader.asked()
        # The write fails, and so does taking it back.
        a.disk.faults.fail("write", times=None)
        a.disk.faults.fail("truncate", times=None)
        asked.answer(Part(a, batches(1)), Part(b, batches(1)))
        asked = await setup.leader.asked()
        assert asked.offsets == {b.key: (EPOCH, 1)}
        assert asked.request.forgotten == [(a.key, [0])]
        assert len(setup.fetcher) == 1
        assert setup.failed == [a.partition.topic_partition]


async def test_partition_without_room_is_fetched_again_when_there_is_some() -> None:
    clock = FakeClock()
    async with fetching("a", "b", clock=clock) as (setup, (a, b)):
        asked = await setup.leader.asked()
        a.disk.room_bytes = 0
        asked.answer(Part(a, batches(1)), Part(b, batches(1)))
        asked = await setup.leader.asked()
        assert asked.request.forgotten == [(a.key, [0])]
        a.disk.room_bytes = None
        clock.advance(1)
        asked.answer()
        asked = await setup.leader.asked()
        assert asked.offsets == {a.key: (EPOCH, 0)}
        asked.answer(Part(a, batches(1)))
        assert (await setup.leader.asked()).offsets == {a.key: (EPOCH, 1)}


async def test_damaged_records_are_not_appended_and_are_asked_for_again() -> None:
    damaged = bytearray(batches(1))
    damaged[-1] ^= 1
    async with fetching("t") as (setup, (t,)):
        (await setup.leader.asked()).answer(Part(t, bytes(damaged)))
        asked = await setup.leader.asked()
        assert asked.offsets == {t.key: (EPOCH, 0)}
        assert t.log.log_end_offset == 0


async def test_answer_to_a_partition_that_has_left_is_not_used() -> None:
    async with fetching("a", "b") as (setup, (a, b)):
        asked = await setup.leader.asked()
        assert setup.fetcher.remove(a.partition)
        asked.answer(Part(a, batches(1)), Part(b, batches(1)))
        asked = await setup.leader.asked()
        assert asked.request.forgotten == [(a.key, [0])]
        assert (a.log.log_end_offset, b.log.log_end_offset) == (0, 1)


async def test_answer_of_an_earlier_epoch_is_not_used() -> None:
    async with fetching("t") as (setup, (t,)):
        asked = await setup.leader.asked()
        t.follow(EPOCH + 1)
        asked.answer(Part(t, batches(1)))
        setup.fetcher.add(t.partition)
        assert (await setup.leader.asked()).offsets == {t.key: (EPOCH + 1, 0)}
        assert t.log.log_end_offset == 0


async def test_second_answer_for_a_partition_in_one_response_is_not_used() -> None:
    async with fetching("t") as (setup, (t,)):
        (await setup.leader.asked()).answer(Part(t, batches(1)), Part(t, batches(1, first=1)))
        assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 1)}


async def test_new_partition_ends_a_poll_that_waits_for_others() -> None:
    async with fetching("a") as (setup, (a,)):
        (await setup.leader.asked()).answer(Part(a))
        await setup.leader.asked()
        b = setup.follower("b")
        asked = await setup.leader.asked()
        # What became of the poll is unknown, so this one names everything, and closes the session.
        assert (asked.request.session_id, asked.request.session_epoch) == (SESSION, 0)
        assert asked.offsets == {a.key: (EPOCH, 0), b.key: (EPOCH, 0)}
        assert (setup.leader.connections_count, setup.leader.closed_count) == (2, 1)


async def test_polls_are_not_ended_for_each_of_many_new_partitions() -> None:
    async with fetching("a") as (setup, (a,)):
        (await setup.leader.asked()).answer(Part(a))
        await setup.leader.asked()
        setup.follower("b")
        await setup.leader.asked()
        setup.follower("c")
        setup.follower("d")
        asked = await setup.leader.asked()
        assert len(asked.offsets) == 4
        assert setup.leader.connections_count == 3


async def test_lost_connection_is_made_anew_with_a_new_session() -> None:
    async with fetching("t") as (setup, (t,)):
        (await setup.leader.asked()).answer(Part(t))
        (await setup.leader.asked()).body.set_exception(PeerLost("it is gone"))
        asked = await setup.leader.asked()
        assert (asked.request.session_epoch, asked.offsets) == (0, {t.key: (EPOCH, 0)})
        assert setup.leader.connections_count == 2


async def test_leader_that_cannot_be_reached_is_tried_again() -> None:
    setup = Setup()
    setup.leader.failures = [PeerRefused("refused")]
    t = setup.follower("t")
    setup.fetcher.start()
    asked = await setup.leader.asked()
    assert setup.refused == []  # it may just have been starting
    setup.leader.failures = [PeerRefused("refused"), PeerLost("reset"), PeerRefused("refused")]
    asked.body.set_exception(PeerLost("it is gone"))
    assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 0)}
    assert setup.refused == [ELSEWHERE, ELSEWHERE]
    assert (setup.totals.requests_count, setup.totals.failures_count) == (2, 5)
    await asyncio.wait([setup.fetcher.stop()])


async def test_response_that_cannot_be_read_closes_the_connection() -> None:
    async with fetching("t") as (setup, (t,)):
        (await setup.leader.asked()).body.set_result(memoryview(b"\0" * 9))
        asked = await setup.leader.asked()
        assert asked.offsets == {t.key: (EPOCH, 0)}
        assert setup.leader.closed_count == 1


async def test_evicted_session_is_begun_anew_on_the_same_connection() -> None:
    async with fetching("t") as (setup, (t,)):
        (await setup.leader.asked()).answer(Part(t))
        (await setup.leader.asked()).answer(session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        asked = await setup.leader.asked()
        assert (asked.request.session_epoch, asked.offsets) == (0, {t.key: (EPOCH, 0)})
        assert setup.leader.connections_count == 1
        # A leader that says so of a request without a session is not asked again on the spot.
        asked.answer(session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        await setup.leader.asked()
        assert setup.leader.connections_count == 2


async def test_broker_that_registered_again_begins_another_session() -> None:
    async with fetching("t") as (setup, (t,)):
        asked = await setup.leader.asked()
        setup.broker_epoch = 11
        asked.answer(Part(t))
        asked = await setup.leader.asked()
        assert (asked.request.replica_epoch, asked.request.session_epoch) == (11, 0)
        assert asked.offsets == {t.key: (EPOCH, 0)}


async def test_failed_flush_ends_all_fetching() -> None:
    async with fetching("a", "b") as (setup, (a, b)):
        setup.holds_flushes = True
        (await setup.leader.asked()).answer(Part(a, batches(1)), Part(b))
        await setup.waits_for_flush()
        setup.flush(OSError("the disk is gone"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not len(setup.fetcher)
        assert setup.leader._asked.empty()


async def test_partition_that_is_removed_does_not_hold_up_the_others_by_its_flush() -> None:
    async with fetching("a", "b") as (setup, (a, b)):
        setup.holds_flushes = True
        (await setup.leader.asked()).answer(Part(a, batches(1)), Part(b))
        await setup.waits_for_flush()
        setup.fetcher.remove(a.partition)
        assert (await setup.leader.asked()).request.forgotten == [(a.key, [0])]


async def test_partition_with_an_unstable_tail_is_flushed_before_it_is_fetched() -> None:
    setup = Setup()
    t = Follower("t")
    t.log.append_run(memoryview(batches(2)), 0)
    setup.fetch(t)
    setup.fetcher.start()
    assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 2)}
    assert setup.flushes_count == 1
    await asyncio.wait([setup.fetcher.stop()])


async def test_large_response_does_not_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "_SLICE_BYTES", 1)
    async with fetching("a", "b", "c") as (setup, followers):
        (await setup.leader.asked()).answer(*(Part(each, batches(1)) for each in followers))
        seen = set()
        for _ in range(20):
            seen.add(sum(each.log.log_end_offset for each in followers))
            await asyncio.sleep(0)
        assert seen == {0, 1, 2, 3}


async def test_bug_of_ours_does_not_end_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fetching("t") as (setup, (t,)):
        asked = await setup.leader.asked()
        with monkeypatch.context() as patched:
            patched.setattr(replica_fetcher, "read_replica_fetch_response", lambda _: 1 // 0)
            asked.answer(Part(t))
            asked = await setup.leader.asked()
        asked.answer(Part(t, batches(1)))
        assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 1)}


async def test_fetcher_without_partitions_waits() -> None:
    async with fetching() as (setup, _):
        for _ in range(5):
            await asyncio.sleep(0)
        assert setup.leader.connections_count == 0
        t = setup.follower("t")
        assert (await setup.leader.asked()).offsets == {t.key: (EPOCH, 0)}


async def test_throttled_partition_waits_for_its_rate_and_the_others_do_not() -> None:
    clock = FakeClock()
    async with fetching(clock=clock) as (setup, _):
        setup.throttle.configure(
            ConfigsView(
                1,
                {
                    ConfigEntity.broker(HERE): {"follower.replication.throttled.rate": "1000"},
                    ConfigEntity.topic("slow"): {"follower.replication.throttled.replicas": "*"},
                },
            ),
            clock.monotonic_ms(),
        )
        slow, free = Follower("slow"), Follower("free")
        slow.partition.on_state(replicated(ELSEWHERE, EPOCH, 9, in_sync=(ELSEWHERE,)), BOTH, 0)
        for follower in (slow, free):
            setup.fetch(follower)
        asked = await setup.leader.asked()
        sizes = {key: fetches[0][5] for key, fetches in asked.request.topics}
        assert sizes == {slow.key: 1_000, free.key: 1 << 20}
        asked.answer(Part(slow, batches(3)), Part(free, batches(1)))
        asked = await setup.leader.asked()
        assert asked.offsets == {free.key: (EPOCH, 1)}
        assert asked.request.forgotten == [(slow.key, [0])]
        clock.advance(1_000)
        asked.answer(Part(free, batches(1, first=1)))
        asked = await setup.leader.asked()
        assert asked.offsets == {free.key: (EPOCH, 2), slow.key: (EPOCH, 3)}


async def test_replica_that_is_in_sync_is_not_throttled() -> None:
    async with fetching("t") as (setup, (t,)):
        setup.throttle.configure(
            ConfigsView(
                1,
                {
                    ConfigEntity.broker(None): {"follower.replication.throttled.rate": "1"},
                    ConfigEntity.topic("t"): {"follower.replication.throttled.replicas": "*"},
                },
            ),
            0,
        )
        for number in range(3):
            asked = await setup.leader.asked()
            assert number == 0 or asked.offsets == {t.key: (EPOCH, number)}
            asked.answer(Part(t, batches(1, first=number)))
