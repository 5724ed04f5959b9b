"""Kafka Streams with exactly_once_v2: two instances that are killed again and again, and a broker that is, too."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop.exactly_once.killed_program import KilledProgram, streams_program
from tests.interop.exactly_once.topics import Input, Output, create_topics
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.either_broker import BrokerKind
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(BROUGHT_WITHIN_S + 600)]

WORDS: Final = ("ant", "bee", "cat", "dog", "eel", "fly", "gnu", "hen", "ibis", "jay", "koi", "lynx", "mole")
LINES: Final = 3_000
WORDS_PER_LINE: Final = 3
PAUSE_S: Final = 0.01
KILLS: Final = 4
# Outputs between two kills; the program works on while the other instance starts.
OUTPUTS_PER_KILL: Final = LINES * WORDS_PER_LINE // (KILLS + 2)


def line(number: int) -> str:
    return " ".join(WORDS[(number * WORDS_PER_LINE + at) % len(WORDS)] for at in range(WORDS_PER_LINE))


@contextmanager
def restartable(kind: BrokerKind) -> Iterator[RunningBroker | ApacheKafka]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    if kind is BrokerKind.OTTLA:
        with RunningBroker(settings=settings) as ottla:
            yield ottla
        return
    try:
        with ApacheKafka(settings) as kafka:
            yield kafka
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.mark.parametrize("kind", BrokerKind)
def test_streams_counts_each_word_once_through_kills(kind: BrokerKind, tmp_path: Path) -> None:
    try:
        home = streams_program()
    except (PeerUnavailable, KafkaUnavailable) as reason:
        pytest.skip(f"Kafka Streams is not available: {reason}")
    with restartable(kind) as broker, ExitStack() as programs:
        create_topics(broker.bootstrap, "lines", "counts")
        instances = []
        for name in ("first", "second"):
            program = programs.enter_context(KilledProgram(home, "WordCount", tmp_path / f"{name}.log"))
            arguments = [broker.bootstrap, "word-count", "lines", "counts", str(tmp_path / name)]
            program.start(arguments)
            instances.append((program, arguments))
        lines = threading.Thread(target=send_lines, args=(broker.bootstrap,))
        lines.start()
        output = Output(broker.bootstrap, "counts")
        for kill in range(KILLS):
            output.wait_for((kill + 1) * OUTPUTS_PER_KILL)
            program, arguments = instances[kill % 2]
            program.kill()
            if kill == KILLS // 2:
                restart(broker)
            program.start(arguments)
        lines.join()
        output.wait_for(LINES * WORDS_PER_LINE)
        for program, _ in instances:
            program.stop()
        output.read()
        output.close()
    assert counts_by_word(output) == expected_counts()


def send_lines(bootstrap: str) -> None:
    Input(bootstrap, "lines").send((line(number) for number in range(LINES)), PAUSE_S)


def restart(broker: RunningBroker | ApacheKafka) -> None:
    if isinstance(broker, RunningBroker):
        broker.kill()
    else:
        broker.stop()
    broker.start()


def counts_by_word(output: Output) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, value in output.records:
        assert key is not None
        found[key.decode()].append(int.from_bytes(value, "big"))
    return dict(found)


def expected_counts() -> dict[str, list[int]]:
    """Each word's counts in their order: 1, 2, 3 and so on."""
    totals: dict[str, int] = defaultdict(int)
    for number in range(LINES):
        for word in line(number).split():
            totals[word] += 1
    return {word: list(range(1, total + 1)) for word, total in totals.items()}
