"""./dev bench growth: what grows with partitions, connections, groups, brokers and a backlog, beside Apache Kafka."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import uvloop

from bench.growth.backlog import measure_backlog
from bench.growth.brokers import CLUSTERS, measure_brokers
from bench.growth.followers import measure_followers
from bench.growth.idle import measure_idle
from bench.growth.lines import CLIENTS, Line, connection_lines, measure_line
from bench.growth.load import make_topic, measure_produce, warm_up
from bench.growth.sizes import FULL, QUICK
from bench.growth.table import growth_table
from bench.peers.names import APACHE_KAFKA, OTTLA_2P, OTTLA_ACK, OTTLA_OS, PEERS_WITH_SETTINGS
from bench.peers.ottla_processes import PROCESSES
from bench.peers.peer import Peer, RestartablePeer
from bench.raw_client.load import ProduceLoad
from bench.study import ROUND, Observed, Study, StudyOptions, say
from bench.wire import NO_SETTINGS, Wire

PEERS: Final = (APACHE_KAFKA, OTTLA_OS, OTTLA_ACK, OTTLA_2P)
# What a broker holds besides a descriptor for each connection or partition.
DESCRIPTORS_ASIDE: Final = 1000
# So many requests are on their way in the parts with many partitions, on two connections.
IN_FLIGHT: Final = 50
CONNECTIONS: Final = 2


class GrowthRun:
    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._sizes = QUICK if options.is_quick else FULL
        self._descriptors_max = raise_descriptor_limit()
        observed.about["descriptors"] = self._descriptors_max
        observed.about["scale"] = options.scale

    def run(self) -> None:
        for round_index in range(self._options.rounds):
            if self._options.has_part("partitions"):
                self._measure_partitions("partitions", self._sizes.partitions, round_index)
            if self._options.has_part("many"):
                self._measure_partitions("many", self._sizes.many_partitions, round_index)
            if self._options.has_part("backlog"):
                for name in self._names(round_index):
                    with self._observed.may_fail(f"{name}, backlog"), self._peer(name) as peer:
                        measure_backlog(name, peer, self._sizes, self._options.scale, self._observed)
            if self._options.has_part("brokers"):
                self._measure_brokers(round_index)
        if any(self._options.has_part(part) for part in ("connections", "clients", "idle", "groups")):
            self._measure_side_by_side()

    def _names(self, round_index: int) -> list[str]:
        """Every second round in the other direction: no peer always follows the same one."""
        names = [name for name in PEERS if self._options.has_peer(name)]
        return names if round_index % 2 == 0 else names[::-1]

    @contextmanager
    def _peer(self, name: str) -> Iterator[RestartablePeer]:
        with PEERS_WITH_SETTINGS[name](self._options.work_dir, NO_SETTINGS) as peer:
            say(f"{name}: warming up")
            warm_up(peer, self._sizes.warm_s)
            yield peer

    def _measure_partitions(self, part: str, counts: Iterable[int], round_index: int) -> None:
        for count in counts:
            for name in self._names(round_index):
                # One is open for each partition that a process leads.
                open_count = count // PROCESSES if name == OTTLA_2P else count
                if not self._has_descriptors(f"{name}, {count} partitions", open_count):
                    continue
                with self._observed.may_fail(f"{name}, {count} partitions"), self._peer(name) as peer:
                    say(f"{name}: {count} partitions")
                    figures = measure_partitions(peer, count, self._sizes.seconds)
                    self._observed.add(f"{part}-{count}", name, {ROUND: round_index, **figures})

    def _measure_brokers(self, round_index: int) -> None:
        for count in self._sizes.brokers:
            for name in self._names(round_index):
                if name in CLUSTERS:
                    with self._observed.may_fail(f"{name}, {count} brokers"):
                        measure_brokers(name, count, self._options.work_dir, self._sizes, round_index, self._observed)

    def _measure_side_by_side(self) -> None:
        """All peers run and are measured in turn, line by line: a ratio is of figures taken in succession."""
        with ExitStack() as running:
            peers: dict[str, Peer] = {}
            for name in self._names(0):
                with self._observed.may_fail(name):
                    peers[name] = running.enter_context(self._peer(name))
            if self._options.has_part("clients"):
                self._measure_lines(peers, CLIENTS)
            if self._options.has_part("connections"):
                counts = [n for n in self._sizes.connections if self._has_descriptors(f"{n} connections", n)]
                self._measure_lines(peers, connection_lines(counts))
            if self._options.has_part("groups"):
                for count in self._sizes.groups:
                    self._measure_groups(peers, count)
            count = self._sizes.idle_connections
            if self._options.has_part("idle") and self._has_descriptors(f"{count} idle connections", count):
                for name, peer in peers.items():
                    with self._observed.may_fail(f"{name}, idle"):
                        self._observed.add(f"idle-{count}", name, measure_idle(peer, count))

    def _measure_lines(self, peers: dict[str, Peer], lines: Iterable[Line]) -> None:
        for line in lines:
            for round_index in range(self._options.rounds):
                for name in self._names(round_index):
                    if name in peers:
                        with self._observed.may_fail(f"{name}, {line.name}"):
                            measure_line(line, peers[name], self._sizes.seconds, round_index, self._observed)

    def _measure_groups(self, peers: dict[str, Peer], count: int) -> None:
        for round_index in range(self._options.rounds):
            for name in self._names(round_index):
                if name in peers:
                    with (
                        self._observed.may_fail(f"{name}, {count} groups"),
                        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
                    ):
                        topic = f"followed-{count}-{round_index}"
                        figures = runner.run(measure_followers(peers[name], topic, count, self._sizes.groups_s))
                        self._observed.add(f"groups-{count}", name, {ROUND: round_index, **figures})

    def _has_descriptors(self, what: str, count: int) -> bool:
        """False, with the reason in the result, when a process could not open so many files or sockets."""
        needed = count + DESCRIPTORS_ASIDE
        if needed <= self._descriptors_max:
            return True
        left_out = self._observed.about.setdefault("left_out", [])
        left_out.append(
            f"{what}: the hard limit of descriptors is {self._descriptors_max:,} here, {needed:,} are needed"
            f" (as root: ulimit -Hn {needed})"
        )
        say(left_out[-1])
        return False


def measure_partitions(peer: RestartablePeer, count: int, seconds: float) -> dict[str, float]:
    """Batches of one record to all partitions in turn, then a restart."""
    started = time.monotonic()
    ports = make_topic(peer, "grown", count)
    create_s = time.monotonic() - started
    load = ProduceLoad(1, IN_FLIGHT, count, seconds=seconds, connections=CONNECTIONS, leader_ports=ports)
    figures = measure_produce(peer, load, "grown")
    peer.stop()
    peer.start()
    restart_s = peer.startup_s
    with Wire(peer.port) as wire:
        wire.wait_until_served("grown", count)
    return {**figures, "create_s": create_s, "restart_s": restart_s}


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, which the brokers and clients inherit; the hard one."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


STUDY: Final = Study(
    name="growth",
    summary="cost against partitions, connections, groups, brokers and a backlog, beside Apache Kafka",
    parts=("partitions", "many", "connections", "clients", "idle", "groups", "brokers", "backlog"),
    peers=PEERS,
    rounds=1,
    run=lambda options, observed: GrowthRun(options, observed).run(),
    table=growth_table,
    has_scale=True,
)
