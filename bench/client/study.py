"""./dev bench client: Python's clients of Kafka against one broker of Ottla, in alternation."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from bench.client.contenders.names import (
    AIOKAFKA,
    CONFLUENT,
    CONSUME,
    FILL,
    KAFKA_PYTHON,
    LATENCY,
    PACE,
    PRODUCE,
    SLOW,
    WAYS,
    Way,
)
from bench.client.job import Job, finish_job, run_job, start_job
from bench.client.matrix import FULL, QUICK, USUAL_BYTES, Shape
from bench.client.table import client_table
from bench.paper.study import check_stored
from bench.peers.ottla import OttlaPeer, start_ottla
from bench.scenarios.scenario import Figures
from bench.scenarios.topics import count_records
from bench.study import ROUND, Observed, Study, StudyOptions, say
from bench.wire import Wire

# Members of a group are not waited for: a consumer's start is no part of any figure, and there are hundreds.
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
# Slow clients read so much less of the same messages.
SLOW_SHARE: Final = 8
# One that producers send before the clock runs: it brings metadata and the producer's id.
FIRST: Final = 1
LATENCY_MESSAGES_PER_S: Final = 1000


class ClientRun:
    """One broker serves everybody; clients alternate load by load, every second round in the other direction."""

    def __init__(self, options: StudyOptions, observed: Observed, peer: OttlaPeer) -> None:
        self._options = options
        self._observed = observed
        self._peer = peer
        self._sizes = QUICK if options.is_quick else FULL
        self._filled: set[str] = set()

    def run(self) -> None:
        for round_index in range(self._options.rounds):
            say(f"round {round_index + 1} of {self._options.rounds}")
            for shape in self._sizes.shapes():
                for contender in self._in_turn(shape.contenders(PRODUCE), PRODUCE, round_index):
                    with self._observed.may_fail(f"{contender}, {shape.scenario(PRODUCE)}"):
                        self._add(shape.scenario(PRODUCE), contender, round_index, self._produce(shape, contender))
                for contender in self._in_turn(shape.contenders(CONSUME), CONSUME, round_index):
                    with self._observed.may_fail(f"{contender}, {shape.scenario(CONSUME)}"):
                        self._add(shape.scenario(CONSUME), contender, round_index, self._consume(shape, contender))
            for contender in self._in_turn(list(WAYS[LATENCY]), LATENCY, round_index):
                with self._observed.may_fail(f"{contender}, {LATENCY}"):
                    self._add(LATENCY, contender, round_index, self._latency(contender, round_index))

    def _in_turn(self, contenders: list[str], part: str, round_index: int) -> list[str]:
        if not self._options.has_part(part):
            return []
        chosen = [name for name in contenders if self._options.has_peer(name)]
        return chosen if round_index % 2 == 0 else chosen[::-1]

    def _add(self, scenario: str, contender: str, round_index: int, figures: Figures) -> None:
        self._observed.add(scenario, contender, {**figures, ROUND: round_index})

    def _produce(self, shape: Shape, contender: str) -> Figures:
        topic = f"{shape.scenario(PRODUCE)}-{contender}"
        self._make(topic, shape.partitions)
        figures = self._measure(
            self._job(contender, WAYS[PRODUCE][contender], topic, shape, seconds=self._sizes.seconds)
        )
        check_stored(round(figures["messages"]) + FIRST, count_records(self._peer, topic, shape.partitions))
        self._remove(topic)
        return figures

    def _consume(self, shape: Shape, contender: str) -> Figures:
        messages = self._sizes.consumed_messages(shape.value_bytes)
        if contender in SLOW:
            messages //= SLOW_SHARE
        topic = f"{shape.scenario(CONSUME)}-{messages}"
        if topic not in self._filled:
            self._make(topic, shape.partitions)
            run_job(self._job(CONFLUENT, FILL, topic, shape, messages=messages))
            self._filled.add(topic)
        return self._measure(self._job(contender, WAYS[CONSUME][contender], topic, shape, messages=messages))

    def _measure(self, job: Job) -> Figures:
        """The client's figures and the broker's processor time."""
        cpu_before_s = self._peer.cpu_seconds()
        figures = run_job(job)
        cpu_s = self._peer.cpu_seconds() - cpu_before_s
        return {**figures, "broker_cpu_us_per_message": cpu_s / figures["messages"] * 1e6}

    def _latency(self, contender: str, round_index: int) -> Figures:
        """One process sends at an even pace, another waits for each message; the producer is the same for all."""
        shape = Shape(USUAL_BYTES, "plain", 1)
        topic = f"{LATENCY}-{contender}-{round_index}"
        self._make(topic, shape.partitions)
        pace = (self._sizes.latency_s, LATENCY_MESSAGES_PER_S)
        sending = self._job(CONFLUENT, PACE, topic, shape, *pace)
        waiting = self._job(contender, WAYS[LATENCY][contender], topic, shape, *pace)
        with start_job(sending) as sender, start_job(waiting) as consumer:
            try:
                figures = finish_job(waiting, consumer)
                finish_job(sending, sender)
            finally:
                sender.kill()
                consumer.kill()
        self._remove(topic)
        return figures

    def _job(self, contender: str, way: Way, topic: str, shape: Shape, seconds: float = 0.0, messages: int = 0) -> Job:
        return Job(
            contender=contender,
            module=way.module,
            function=way.function,
            bootstrap=f"127.0.0.1:{self._peer.port}",
            topic=topic,
            value_bytes=shape.value_bytes,
            codec=shape.codec,
            partitions=shape.partitions,
            seconds=seconds,
            messages=messages,
        )

    def _make(self, topic: str, partitions: int) -> None:
        with Wire(self._peer.port) as wire:
            wire.create_topic(topic, partitions)

    def _remove(self, topic: str) -> None:
        with Wire(self._peer.port) as wire:  # its files may go when they like
            wire.delete_topic(topic)


def versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in (CONFLUENT, KAFKA_PYTHON, AIOKAFKA))


def run(options: StudyOptions, observed: Observed) -> None:
    observed.about["versions"] = versions()
    with observed.may_fail("the broker"), start_ottla("os", options.work_dir, SETTINGS) as peer:
        ClientRun(options, observed, peer).run()


STUDY: Final = Study(
    name="client",
    summary="Ottla's own client beside confluent-kafka, kafka-python and aiokafka, against one broker",
    parts=(PRODUCE, CONSUME, LATENCY),
    peers=tuple(dict.fromkeys(name for ways in WAYS.values() for name in ways)),
    rounds=3,
    run=run,
    table=client_table,
)
