"""./dev bench groups-load: a restart with many groups and offsets: ready, loaded, memory, latency meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import uvloop

from bench.groups import requests
from bench.groups.connection import Connection
from bench.groups.rebalance import make_topic, wait_for_coordinator
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, PEERS_WITH_SETTINGS
from bench.peers.peer import Peer, RestartablePeer
from bench.raw_client.load import LoadFailed, LoadResult, ProduceLoad, put_load
from bench.study import Observed, Study, StudyOptions, markdown_table, number, say
from bench.wire import BrokerRefused, Wire

ROWS: Final = {
    "ready_s": "ready: s from the process's start to its first answer",
    "load_s": "all groups loaded: s from then",
    "load_beside_producer_s": "the same beside a producer, s",
    "rss_mb": "memory when loaded, MB",
    "rss_peak_mb": "its peak, MB",
    "produce_p99_ms_during": "produce p99 while loading, ms",
    "produce_p99_ms_idle": "produce p99 when loaded, ms",
    "produce_max_ms_during": "worst produce while loading, ms",
    "produce_max_ms_idle": "worst produce when loaded, ms",
    "offsets_topic_mb": "the offsets topic before the restart, MB",
    "commit_s": "committing all of it before, s",
}
NOTES: Final = """\
The producer sends 1,000 requests/s of one record, evenly, from the moment when its partition has a leader, for nine
tenths of the load's time (10 s at most); latency from when a request was due. Apache Kafka's JVM has just been
started, as it would be."""


def groups_load_table(observed: Observed) -> str:
    about = f"{observed.about.get('groups')} groups, {observed.about.get('committed_offsets'):,} committed offsets."
    rows = [
        [title, *(number(observed.median("load", peer, metric)) for peer in (APACHE_KAFKA, OTTLA_ACK))]
        for metric, title in ROWS.items()
    ]
    return f"{about}\n\n{markdown_table(('', 'Apache Kafka', 'Ottla'), rows)}\n\n{NOTES}"


TOPIC: Final = "tracked"
LIVE: Final = "live"
IN_FLIGHT: Final = 8
POLL_S: Final = 0.02
LOAD_TIMEOUT_S: Final = 120
OFFSETS_TOPIC: Final = "__consumer_offsets"
PRODUCE_S_MAX: Final = 10.0
PRODUCE_S_MIN: Final = 0.3
SAMPLES: Final = 10

# Ready within half a second for any number of groups; a million offsets in 15 s; produce p99 below twice the idle one.
READY_S_MAX: Final = 0.5
LOAD_S_MAX: Final = 15.0
P99_RATIO_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class Sizes:
    groups: int
    partitions: int
    """Each group has committed an offset for each."""


FULL: Final = Sizes(groups=1000, partitions=1000)
QUICK: Final = Sizes(groups=200, partitions=500)


class LoadRun:
    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._sizes = QUICK if options.is_quick else FULL
        self._groups = [f"group-{index}" for index in range(self._sizes.groups)]
        observed.about["groups"] = self._sizes.groups
        observed.about["committed_offsets"] = self._sizes.groups * self._sizes.partitions

    def run(self) -> None:
        for round_index in range(self._options.rounds):
            names = [name for name in (OTTLA_ACK, APACHE_KAFKA) if self._options.has_peer(name)]
            for name in names if round_index % 2 == 0 else names[::-1]:
                with self._observed.may_fail(name):
                    self._measure(name)

    def _measure(self, name: str) -> None:
        with (
            PEERS_WITH_SETTINGS[name](self._options.work_dir, {}) as peer,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            make_topic(peer, TOPIC, self._sizes.partitions)
            make_topic(peer, LIVE, 1)
            runner.run(wait_for_coordinator(peer.port, self._groups[0]))
            say(f"{name}: committing {self._sizes.groups * self._sizes.partitions:,} offsets")
            began = time.monotonic()
            runner.run(commit_all(peer, self._groups, self._sizes.partitions))
            commit_s = time.monotonic() - began
            size_bytes = sum(path.stat().st_size for path in peer.data_dir.glob(f"{OFFSETS_TOPIC}-*/*.log"))
            figures = {"commit_s": commit_s, "offsets_topic_mb": size_bytes / 1e6}
            figures |= self._measure_load_alone(peer, runner)
            figures |= self._measure_latency(peer, runner, figures["load_s"])
            runner.run(
                check_offsets(peer, self._groups[:: max(1, len(self._groups) // SAMPLES)], self._sizes.partitions)
            )
            self._observed.add("load", name, figures)
            if name == OTTLA_ACK and not self._options.is_quick:
                self._observed.problems += missed_promises(figures)

    def _measure_load_alone(self, peer: RestartablePeer, runner: asyncio.Runner) -> dict[str, float]:
        peer.stop()
        peer.start()
        ready = time.monotonic()
        runner.run(wait_until_loaded(peer, self._groups))
        return {
            "ready_s": peer.startup_s,
            "load_s": time.monotonic() - ready,
            "rss_mb": peer.rss_bytes() / 1e6,
            "rss_peak_mb": peer.rss_peak_bytes() / 1e6,
        }

    def _measure_latency(self, peer: RestartablePeer, runner: asyncio.Runner, load_s: float) -> dict[str, float]:
        """A paced producer while the groups are loaded, and the same when they are: one restart for both."""
        seconds = min(PRODUCE_S_MAX, max(PRODUCE_S_MIN, load_s * 0.9))
        peer.stop()
        peer.start()
        ready = time.monotonic()
        with Wire(peer.port) as wire:
            wire.wait_until_served(LIVE, 1)
        with ThreadPoolExecutor(1) as producer:
            producing = producer.submit(_produce, peer, seconds)
            runner.run(wait_until_loaded(peer, self._groups))
            loaded_s = time.monotonic() - ready
            during = producing.result()
        time.sleep(1)
        idle = _produce(peer, seconds)
        return {
            "load_beside_producer_s": loaded_s,
            "produce_p99_ms_during": during.p99_us / 1000,
            "produce_p99_ms_idle": idle.p99_us / 1000,
            "produce_max_ms_during": during.max_us / 1000,
            "produce_max_ms_idle": idle.max_us / 1000,
        }


def missed_promises(figures: Mapping[str, float]) -> list[str]:
    """What Ottla has promised of such a restart and did not keep, in words."""
    bounds = {
        "ready_s": READY_S_MAX,
        "load_s": LOAD_S_MAX,
        "produce_p99_ms_during": P99_RATIO_MAX * figures["produce_p99_ms_idle"],
    }
    return [
        f"promise missed: {metric} is {figures[metric]:.3g}, at most {most:.3g} was promised"
        for metric, most in bounds.items()
        if figures[metric] > most
    ]


def _produce(peer: Peer, seconds: float) -> LoadResult:
    load = ProduceLoad(1, in_flight=5, seconds=seconds, warmup_s=0, requests_per_s=1000)
    return put_load(load, peer.port, LIVE)


def offset_of(group_index: int, partition: int) -> int:
    """What is committed: every group and partition has a value of its own."""
    return group_index * 1_000_003 + partition


async def commit_all(peer: Peer, groups: Sequence[str], partitions: int) -> None:
    """As tools commit that are no members: one request for each group, with all its partitions."""
    connection = await Connection.open(peer.port)
    queue = iter(enumerate(groups))

    async def commit(queue: Iterator[tuple[int, str]]) -> None:
        for index, group in queue:
            offsets = {partition: offset_of(index, partition) for partition in range(partitions)}
            body = requests.offset_commit(group, -1, "", TOPIC, offsets)
            error = requests.read_offset_commit(await connection.ask(requests.OFFSET_COMMIT, body))
            if error != requests.NONE:
                raise BrokerRefused(f"OffsetCommit of {group}: error code {error}")

    await asyncio.gather(*(commit(queue) for _ in range(IN_FLIGHT)))
    connection.close()


async def wait_until_loaded(peer: Peer, groups: Sequence[str]) -> None:
    """Until no group is answered with a coordinator that loads.

    One question at a time, about a partition that was not loaded yet: asking about all of them at once would be a load
    of its own, which a producer beside it feels.
    """
    connection = await Connection.open(peer.port)
    left = list(_one_for_each_partition(groups))
    deadline = time.monotonic() + LOAD_TIMEOUT_S
    while left:
        error, _ = await ask_offset(connection, left[-1], [0])
        if error == requests.NONE:
            left.pop()
        elif error not in requests.LOADING:
            raise BrokerRefused(f"OffsetFetch: error code {error}")
        elif time.monotonic() > deadline:
            raise LoadFailed(f"{len(left)} partitions of groups are not loaded after {LOAD_TIMEOUT_S} s")
        else:
            await asyncio.sleep(POLL_S)
    connection.close()


async def ask_offset(connection: Connection, group: str, partitions: Sequence[int]) -> tuple[int, dict[int, int]]:
    body = requests.offset_fetch(group, TOPIC, partitions)
    return requests.read_offset_fetch(await connection.ask(requests.OFFSET_FETCH, body))


async def check_offsets(peer: Peer, groups: Sequence[str], partitions: int) -> None:
    """What was committed before the restarts is there, whole."""
    connection = await Connection.open(peer.port)
    for group in groups:
        index = int(group.rpartition("-")[2])
        error, offsets = await ask_offset(connection, group, range(partitions))
        if error != requests.NONE or offsets != {each: offset_of(index, each) for each in range(partitions)}:
            raise LoadFailed(f"{group}: its offsets are not those that were committed (error code {error})")
    connection.close()


def coordinator_partition(group: str, partitions: int = 50) -> int:
    """Where Apache Kafka's rule puts the group: Java's hash of the name, without its sign bit."""
    value = 0
    for unit in group:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions


def _one_for_each_partition(groups: Sequence[str]) -> Iterator[str]:
    """A partition is loaded as a whole, so the group that was committed last answers for all of its partition."""
    yield from {coordinator_partition(group): group for group in groups}.values()


STUDY: Final = Study(
    name="groups-load",
    summary="a restart with 1,000 groups and a million committed offsets, beside Apache Kafka",
    parts=(),
    peers=(OTTLA_ACK, APACHE_KAFKA),
    rounds=1,
    run=lambda options, observed: LoadRun(options, observed).run(),
    table=groups_load_table,
)
