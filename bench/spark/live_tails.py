"""Live topics beside a measurement: for each, a producer at an even pace and consumers that stay at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.client.contenders.names import CONFLUENT, OTTLA
from bench.raw_client.load import LoadFailed
from bench.spark.child import Child
from bench.spark.tail_process import PRODUCER

CONSUMERS: Final = (OTTLA, CONFLUENT)
VALUE_BYTES: Final = 200
START_TIMEOUT_S: Final = 120
END_TIMEOUT_S: Final = 120


class Tail(NamedTuple):
    """A topic by the name of its scenario.  It exists, and may have records already."""

    name: str
    topic: str
    partitions: int
    records_per_s: int


class LiveTail:
    """One topic with its processes; all consumers have been reading since it was opened."""

    def __init__(self, tail: Tail, producer: Child, consumers: Mapping[str, Child]) -> None:
        self.tail = tail
        self._producer = producer
        self._consumers = consumers

    def wait_until_read(self) -> None:
        for consumer in self._consumers.values():
            consumer.answer(START_TIMEOUT_S)

    def stop(self) -> None:
        self._producer.tell({})

    def figures(self, phases: Mapping[str, list[int]]) -> dict[str, dict[str, float]]:
        """By consumer.  Raises LoadFailed when one has missed a record."""
        sent = self._producer.answer(END_TIMEOUT_S)
        found: dict[str, dict[str, float]] = {}
        for name, consumer in self._consumers.items():
            records = int(consumer.answer(END_TIMEOUT_S)["records"])
            if not 0 < records <= sent["records"]:
                raise LoadFailed(f"{name} saw {records} of {sent['records']} records of {self.tail.topic}")
            consumer.tell(phases)
            found[name] = {**consumer.answer(END_TIMEOUT_S), "producer_cpu_share": sent["cpu_share"]}
        return found


@contextmanager
def live_tails(bootstrap: str, tails: list[Tail], log_dir: Path) -> Iterator[list[LiveTail]]:
    with ExitStack() as stack:
        opened = []
        for tail in tails:
            words = {"bootstrap": bootstrap, "topic": tail.topic, "partitions": tail.partitions, "start": "latest"}
            consumers = {}
            for name in CONSUMERS:
                log = log_dir / f"{tail.name}-{name}.log"
                consumers[name] = stack.enter_context(Child(_PROCESS, {**words, "role": name}, log))
            words |= {"per_s": tail.records_per_s, "value_bytes": VALUE_BYTES, "role": PRODUCER}
            producer = stack.enter_context(Child(_PROCESS, words, log_dir / f"{tail.name}-{PRODUCER}.log"))
            opened.append(LiveTail(tail, producer, consumers))
        for live in opened:
            live.wait_until_read()
        yield opened


_PROCESS: Final = "bench.spark.tail_process"
