"""./dev bench rebalance: groups of 2, 10 and 50, a storm of 200 joins, commits/s; Ottla beside Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from bench.groups.consumer_member import ConsumerMember
from bench.groups.consumer_requests import CONSUMER_GROUP_HEARTBEAT
from bench.groups.member import GroupPlan, Member
from bench.groups.rebalance import Group, make_topic, measure_commits, wait_for_coordinator
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, PEERS_WITH_SETTINGS
from bench.peers.peer import Peer
from bench.study import Observed, Study, StudyOptions, markdown_table, number, say
from bench.wire import BrokerRefused, Wire

PEERS: Final = (APACHE_KAFKA, OTTLA_ACK)
EVENTS: Final = {
    "form": "all join an empty group, delay 0",
    "join": "one more joins",
    "leave": "one leaves",
    "death": "one dies (session 6 s)",
}
STORM_NOTES: Final = """\
Milliseconds from the event (before the request of it is sent) until every member has had an answer to its first fetch
in the new generation, and every partition is owned once; medians, with min..max. Classic protocol, 100 partitions (the
storm: 400); members are lean coroutines with a connection each, the same for both brokers; they send heartbeats every
0.1 s (clients: 3 s by default), by which they learn of a rebalance that another began. Ottla flushes what it
acknowledges (policy `ack`), Apache Kafka does not. Delay: `group.initial.rebalance.delay.ms`. KIP-848: the protocol of
consumer groups, heartbeats every 0.1 s too (5 s by default), the broker's default assignor."""


def rebalance_table(observed: Observed) -> str:
    rows = []
    for scenario in observed.scenarios():
        kind, _, rest = scenario.partition("-")
        if kind in EVENTS:
            size, _, protocol = rest.partition("-")
            title = f"{size} members{', KIP-848' if protocol else ''}: {EVENTS[kind]}"
            rows.append([title, *_cells(observed, scenario)])
        elif kind == "storm":
            joins, _, delay_ms = rest.partition("-delay-")
            rows.append([f"{joins} join at once, delay {int(delay_ms):,} ms", *_cells(observed, scenario)])
    rebalances = markdown_table(("event", "Apache Kafka, ms", "Ottla, ms"), rows)
    return f"{rebalances}\n\n{STORM_NOTES}\n\n{commits_table(observed)}"


def commits_table(observed: Observed) -> str:
    rows = [
        [
            scenario.partition("-")[2],
            peer,
            *(
                number(observed.median(scenario, peer, metric))
                for metric in ("commits_per_s", "p50_ms", "p99_ms", "broker_cpu_us_per_commit", "client_cpu_share")
            ),
        ]
        for scenario, peer in observed.rounds
        if scenario.startswith("commits-")
    ]
    headings = ("members", "broker", "commits/s", "p50 ms", "p99 ms", "broker CPU µs/commit", "client's core share")
    return markdown_table(headings, rows)


def _cells(observed: Observed, scenario: str) -> list[str]:
    cells = []
    for peer in PEERS:
        median, spread = observed.median(scenario, peer, "seconds"), observed.spread(scenario, peer, "seconds")
        if median is None or spread is None:
            cells.append("-")
        else:
            low, high = (f"{value * 1000:,.0f}" for value in spread)
            cells.append(f"{median * 1000:,.0f} ({low}..{high})")
    return cells


SIZES: Final = (2, 10, 50)
STORM: Final = 200
COMMITTERS: Final = 50
HEARTBEAT_S: Final = 0.1
DELAYS_MS: Final = (0, 3000)
PARTITIONS: Final = 100
STORM_PARTITIONS: Final = 400
CONSUMER_SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
}
# Apache Kafka refuses such values unless its bounds are lower, too.
LOWER_BOUNDS: Final = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "6000",
}
DELAY: Final = "group.initial.rebalance.delay.ms"


@dataclass(frozen=True, slots=True)
class Repeats:
    joins: int
    deaths: int
    storms: int
    warm_groups: int
    commit_s: float


FULL: Final = Repeats(joins=5, deaths=2, storms=3, warm_groups=6, commit_s=5)
QUICK: Final = Repeats(joins=3, deaths=1, storms=1, warm_groups=2, commit_s=2)


class RebalanceRun:
    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._repeats = QUICK if options.is_quick else FULL
        observed.about["heartbeat_s"] = HEARTBEAT_S

    def run(self) -> None:
        for round_index in range(self._options.rounds):
            names = [name for name in (OTTLA_ACK, APACHE_KAFKA) if self._options.has_peer(name)]
            for name in names if round_index % 2 == 0 else names[::-1]:
                for delay_ms in DELAYS_MS if self._options.has_part("storm") else DELAYS_MS[:1]:
                    with self._observed.may_fail(f"{name}, {DELAY}={delay_ms}"):
                        self._measure(name, delay_ms)

    def _measure(self, name: str, delay_ms: int) -> None:
        say(f"{name}, {DELAY}={delay_ms}")
        settings = {DELAY: str(delay_ms)} | CONSUMER_SETTINGS
        if name == APACHE_KAFKA:
            settings |= LOWER_BOUNDS
        with PEERS_WITH_SETTINGS[name](self._options.work_dir, settings) as peer:
            make_topic(peer, "ladder", PARTITIONS)
            make_topic(peer, "storm", STORM_PARTITIONS)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(wait_for_coordinator(peer.port, "first"))
                if delay_ms == 0:
                    self._measure_parts(name, peer, runner)
                    self._guarded(runner, name, "consumer groups", self._consumer_ladders(name, peer))
                else:
                    self._guarded(runner, name, "storm", self._storm(name, peer, delay_ms))

    def _measure_parts(self, name: str, peer: Peer, runner: asyncio.Runner) -> None:
        runner.run(self._warm_up(peer))
        if self._options.has_part("ladder"):
            for size in SIZES:
                self._guarded(runner, name, f"{size} members", self._ladder(name, peer, size))
        if self._options.has_part("storm"):
            self._guarded(runner, name, "storm", self._storm(name, peer, 0))
        if self._options.has_part("commits"):
            self._guarded(runner, name, "commits", self._commits(name, peer))

    def _guarded(self, runner: asyncio.Runner, name: str, part: str, work: Coroutine[Any, Any, None]) -> None:
        with self._observed.may_fail(f"{name}, {part}"):
            runner.run(work)

    async def _warm_up(self, peer: Peer) -> None:
        """Groups that are not measured: a JVM compiles what runs often."""
        for index in range(self._repeats.warm_groups):
            async with Group(_plan(peer, f"warm-{index}")) as group:
                await group.form(10)
                await group.form(1)
                await group.leave()
                await group.dissolve()

    async def _ladder(self, name: str, peer: Peer, size: int, kind: type[Member] = Member) -> None:
        suffix = "-848" if kind is ConsumerMember else ""
        async with Group(_plan(peer, f"ladder-{size}{suffix}"), kind) as group:
            self._add(name, f"form-{size}{suffix}", await group.form(size))
            for _ in range(self._repeats.joins):
                self._add(name, f"join-{size}{suffix}", await group.form(1))
                self._add(name, f"leave-{size}{suffix}", await group.leave())
            for index in range(self._repeats.deaths):
                if index > 0 or size == 2:
                    await group.form(1)  # so that the one that dies leaves others behind
                self._add(name, f"death-{size}{suffix}", await group.die())
            await group.dissolve()

    async def _consumer_ladders(self, name: str, peer: Peer) -> None:
        """The same with the protocol of KIP-848."""
        if not self._options.has_part("consumer"):
            return
        with Wire(peer.port) as wire:
            if CONSUMER_GROUP_HEARTBEAT[0] not in wire.api_versions():
                raise BrokerRefused("it does not offer ConsumerGroupHeartbeat")
        for index in range(self._repeats.warm_groups):
            async with Group(_plan(peer, f"warm-848-{index}"), ConsumerMember) as group:
                await group.form(10)
                await group.dissolve()
        for size in SIZES:
            await self._ladder(name, peer, size, ConsumerMember)

    async def _storm(self, name: str, peer: Peer, delay_ms: int) -> None:
        for index in range(self._repeats.storms):
            async with Group(_plan(peer, f"storm-{index}", "storm", STORM_PARTITIONS)) as group:
                cpu_before = peer.cpu_seconds()
                seconds = await group.form(STORM)
                figures = {"seconds": seconds, "broker_cpu_s": peer.cpu_seconds() - cpu_before}
                self._observed.add(f"storm-{STORM}-delay-{delay_ms}", name, figures)
                await group.dissolve()

    async def _commits(self, name: str, peer: Peer) -> None:
        async with Group(_plan(peer, "commits")) as group:
            await group.form(COMMITTERS)
            await measure_commits(group, self._repeats.commit_s / 2, peer)  # not kept: the JVM's warm-up
            figures = await measure_commits(group, self._repeats.commit_s, peer)
            self._observed.add(f"commits-{COMMITTERS}", name, figures)
            await group.dissolve()

    def _add(self, name: str, scenario: str, seconds: float) -> None:
        self._observed.add(scenario, name, {"seconds": seconds})


def _plan(peer: Peer, group: str, topic: str = "ladder", partitions: int = PARTITIONS) -> GroupPlan:
    return GroupPlan(peer.port, group, topic, partitions, HEARTBEAT_S)


STUDY: Final = Study(
    name="rebalance",
    summary="rebalances, a join storm and commits/s of groups, beside Apache Kafka",
    parts=("ladder", "storm", "commits", "consumer"),
    peers=(OTTLA_ACK, APACHE_KAFKA),
    rounds=2,
    run=lambda options, observed: RebalanceRun(options, observed).run(),
    table=rebalance_table,
)
