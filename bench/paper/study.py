"""./dev bench paper: the systems one after another, each alone on the machine, in every round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.paper.systems import OTTLA, SYSTEMS, VERSIONS, Load, System
from bench.peers.names import APACHE_KAFKA
from bench.raw_client.load import LoadFailed
from bench.scenarios.scenario import Figures
from bench.scenarios.topics import settle_disk
from bench.study import Observed, Study, StudyOptions, markdown_table, number, say

TITLES: Final = {
    "ottla": ("Ottla", "`ack`: flushed before acknowledged", "`os`: page cache"),
    "apache-kafka": ("Apache Kafka", "`flush.messages=1`", "defaults: page cache"),
    "rabbitmq": ("RabbitMQ", "persistent, confirmed", "transient"),
    "activemq": ("ActiveMQ", "persistent", "not persistent"),
}
HEADINGS: Final = (
    *("system", "form", "client", "producer, 1 at a time", "producer, 50", "consumer"),
    *("broker CPU µs/message", "memory MB"),
)
NOTES: Final = """\
Messages/s, medians; one producer or one consumer, 200 bytes a message, one partition or queue. "1 at a time": each
message is a request of its own, five unacknowledged at most. "50": batches of 50, five on their way; RabbitMQ,
confirmed: 250 messages unacknowledged, transient: no confirms at all; ActiveMQ: persistent in transactions of 50,
others without waiting. Consumers fetch or prefetch up to 1,000 messages (200 kB); those of queues acknowledge many at
once. Broker CPU: producer 1, producer 50, consumer. Clients: each system's own Java client, and confluent-kafka
(librdkafka) for the two that it speaks to."""


def paper_table(observed: Observed) -> str:
    rows = [
        row
        for form in ("durable", "fast")
        for system, titles in TITLES.items()
        for client in ("librdkafka", "java")
        if (row := _row(observed, system, titles, form, client))
    ]
    return f"{markdown_table(HEADINGS, rows)}\n\n{NOTES}"


def _row(observed: Observed, system: str, titles: tuple[str, str, str], form: str, client: str) -> list[str]:
    cells = [f"{form}-{client}-{what}" for what in ("produce-b1", "produce-b50", "consume")]
    if not any((cell, system) in observed.rounds for cell in cells):
        return []
    rates = [number(observed.median(cell, system, "messages_per_s")) for cell in cells]
    costs = [number(observed.median(cell, system, "broker_cpu_us_per_message")) for cell in cells]
    memory = [observed.median(cell, system, "rss_mb") for cell in cells]
    largest = max((value for value in memory if value is not None), default=None)
    return [titles[0], titles[1 if form == "durable" else 2], client, *rates, " / ".join(costs), number(largest)]


PRODUCE: Final = "produce"
CONSUME: Final = "consume"
BATCHES: Final = (1, 50)


@dataclass(frozen=True, slots=True)
class Sizes:
    warmup_s: float
    seconds: float
    """Of one measured load."""
    start_warm_s: float
    """How long a fresh server is loaded before anything is measured: JVMs compile what runs often."""
    log_messages: int
    """In the topic that is read again and again."""
    queue_messages: int
    """In the queue that is read once."""


FULL: Final = Sizes(warmup_s=1.5, seconds=4, start_warm_s=10, log_messages=2_000_000, queue_messages=150_000)
QUICK: Final = Sizes(warmup_s=1, seconds=1.5, start_warm_s=2, log_messages=500_000, queue_messages=30_000)


def scenario_name(is_durable: bool, client: str, mode: str, batch: int = 0) -> str:
    form = "durable" if is_durable else "fast"
    return f"{form}-{client}-{mode}" + (f"-b{batch}" if mode == PRODUCE else "")


class PaperRun:
    def __init__(self, options: StudyOptions, observed: Observed) -> None:
        self._options = options
        self._observed = observed
        self._sizes = QUICK if options.is_quick else FULL

    def run(self) -> None:
        names = [name for name in SYSTEMS if self._options.has_peer(name)]
        for round_index in range(self._options.rounds):
            # Every second round in the other direction, as the machine drifts.
            for name in names if round_index % 2 == 0 else names[::-1]:
                with self._observed.may_fail(name):
                    self._note_version(name)
                    self._measure_system(name, round_index)

    def _note_version(self, name: str) -> None:
        if name in VERSIONS:
            self._observed.about[f"version of {name}"] = VERSIONS[name]()

    def _measure_system(self, name: str, round_index: int) -> None:
        say(f"{name}, round {round_index + 1} of {self._options.rounds}")
        with SYSTEMS[name](self._options.work_dir) as system:
            self._warm_up(system)
            for is_durable in (True, False):
                for client in self._clients(system):
                    for batch in BATCHES:
                        scenario = scenario_name(is_durable, client, PRODUCE, batch)
                        with self._observed.may_fail(f"{name}, {scenario}"):
                            self._produce(name, system, scenario, (is_durable, client, batch))
                self._consume(name, system, is_durable)

    def _clients(self, system: System) -> tuple[str, ...]:
        """Those that are measured: a quick run has one for each system."""
        return system.clients[:1] if self._options.is_quick else system.clients

    def _warm_up(self, system: System) -> None:
        """Fills and reads a place of its own; nothing of it is measured."""
        load = Load(0, self._sizes.start_warm_s / len(BATCHES) / 2, messages=self._sizes.queue_messages // 2)
        for batch in BATCHES:
            for is_durable in (True, False):
                place = f"warm-up-{batch}-{is_durable}".lower()
                system.make(place, is_durable)
                warm = Load(load.warmup_s, load.seconds, batch)
                system.produce(system.clients[0], place, is_durable, warm)
                system.remove(place)
        system.make("warm-up-read", False)
        system.fill("warm-up-read", False, self._sizes.queue_messages // 2)
        system.consume(system.clients[0], "warm-up-read", False, load)
        system.remove("warm-up-read")

    def _produce(self, name: str, system: System, scenario: str, how: tuple[bool, str, int]) -> None:
        is_durable, client, batch = how
        system.make(scenario, is_durable)
        load = Load(self._sizes.warmup_s, self._sizes.seconds, batch)
        figures, total = measure(system, partial(system.produce, client, scenario, is_durable, load))
        check_stored(total, system.remove(scenario))
        self._observed.add(scenario, name, figures)

    def _consume(self, name: str, system: System, is_durable: bool) -> None:
        sizes = self._sizes
        is_log = name in (OTTLA, APACHE_KAFKA)
        messages = sizes.log_messages if is_log else sizes.queue_messages
        for client in self._clients(system):
            scenario = scenario_name(is_durable, client, CONSUME)
            with self._observed.may_fail(f"{name}, {scenario}"):
                system.make(scenario, is_durable)
                system.fill(scenario, is_durable, messages)
                load = Load(sizes.warmup_s, sizes.seconds, messages=messages)
                figures, _ = measure(system, partial(system.consume, client, scenario, is_durable, load))
                self._observed.add(scenario, name, figures)
                system.remove(scenario)


def measure(system: System, run: Callable[[], dict[str, float]]) -> tuple[Figures, int]:
    """The client's figures and the server's (processor time over all messages, memory afterwards); all messages."""
    settle_disk()
    cpu_before = system.process.cpu_seconds()
    result = run()
    cpu_s = system.process.cpu_seconds() - cpu_before
    if result["messages_per_s"] == 0:
        raise LoadFailed("no message passed while it was measured")
    figures = {
        "messages_per_s": result["messages_per_s"],
        "broker_cpu_us_per_message": cpu_s / result["messages_total"] * 1e6,
        "client_cpu_share": result["client_cpu_share"],
        "rss_mb": system.process.rss_bytes() / 1e6,
    }
    return figures, int(result["messages_total"])


def check_stored(acknowledged: int, stored: int) -> None:
    if stored not in (acknowledged, -1):
        raise LoadFailed(f"{acknowledged} messages were acknowledged, {stored} are stored")


STUDY: Final = Study(
    name="paper",
    summary="figures 4 and 5 of the paper: Ottla, Apache Kafka, RabbitMQ and ActiveMQ",
    parts=(),
    peers=tuple(SYSTEMS),
    rounds=2,
    run=lambda options, observed: PaperRun(options, observed).run(),
    table=paper_table,
)
