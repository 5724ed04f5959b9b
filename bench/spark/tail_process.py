"""One end of a live tail, in a process of its own: a producer at an even pace, or a consumer that notes how late it is.

A value begins with the moment at which it was due and its number in its partition.  The last one of each partition has
no moment.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.client.contenders.confluent import Deliveries, open_producer
from bench.client.contenders.names import CONFLUENT, OTTLA
from bench.client.job import Job
from bench.client.stopwatch import Stopwatch
from bench.spark.parent import hear_from_parent, say_to_parent
from bench.study import percentile

PRODUCER: Final = "producer"
SILENCE_S: Final = 60.0
FLUSH_S: Final = 60
WORD_BYTES: Final = 8
# Where a value has a moment.
_NEVER: Final = 0


class TailBroken(RuntimeError):
    """A record is missing, or came twice."""


def produce(words: Mapping[str, Any]) -> dict[str, float]:
    """Until the parent speaks."""
    deliveries = Deliveries()
    job = Job(CONFLUENT, "", "", words["bootstrap"], words["topic"], words["value_bytes"])
    producer = open_producer(job, deliveries, linger_ms=0)
    is_over = threading.Event()

    def wait_for_parent() -> None:
        hear_from_parent()
        is_over.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    partitions, per_s = words["partitions"], words["per_s"]
    rest = bytes(words["value_bytes"] - 2 * WORD_BYTES)
    watch = Stopwatch()
    began_ns = time.monotonic_ns()
    index = 0
    while not is_over.is_set():
        due_ns = began_ns + index * 1_000_000_000 // per_s
        while (early_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(early_ns / 1e9)
        number, partition = divmod(index, partitions)
        producer.produce(words["topic"], _value(due_ns, number) + rest, partition=partition)
        producer.poll(0)
        index += 1
    for partition in range(partitions):
        number = (index + partitions - 1 - partition) // partitions
        producer.produce(words["topic"], _value(_NEVER, number) + rest, partition=partition)
    producer.flush(FLUSH_S)
    if deliveries.error is not None or deliveries.count != index + partitions:
        raise TailBroken(f"{deliveries.count} of {index + partitions} were acknowledged: {deliveries.error}")
    return {"records": index, "cpu_share": watch.figures(index)["cpu_share"]}


def _value(due_ns: int, number: int) -> bytes:
    return due_ns.to_bytes(WORD_BYTES) + number.to_bytes(WORD_BYTES)


def consume(words: Mapping[str, Any]) -> dict[str, float]:
    """To the last record of each partition; then the parent says which times it wants the latencies of."""
    delays = Delays(words["partitions"])
    watch: Stopwatch | None = None
    for partition, value in (_ottla if words["role"] == OTTLA else _confluent)(words):
        now_ns = time.monotonic_ns()
        if watch is None:
            watch = Stopwatch()
            say_to_parent({"reads": words["topic"]})
        if delays.note(partition, value, now_ns):
            break
    if watch is None or not delays.is_whole:
        raise TailBroken(f"{words['topic']}: nothing came for {SILENCE_S:g} s")
    cpu_share = watch.figures(1)["cpu_share"]
    say_to_parent({"records": delays.count})
    return {**delays.figures(hear_from_parent()), "cpu_share": cpu_share}


class Delays:
    """From the moment at which a record was due to its being handed out."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._next: dict[int, int] = {}
        self._ended: set[int] = set()
        self._due_ns = array("q")
        self._delays_ns = array("q")

    @property
    def count(self) -> int:
        return len(self._due_ns)

    @property
    def is_whole(self) -> bool:
        return len(self._ended) == self._partitions

    def note(self, partition: int, value: bytes, now_ns: int) -> bool:
        """Whether that was the last one of all.  Raises TailBroken for a gap or a repetition."""
        due_ns = int.from_bytes(value[:WORD_BYTES])
        number = int.from_bytes(value[WORD_BYTES : 2 * WORD_BYTES])
        if self._next.setdefault(partition, number) != number:
            raise TailBroken(f"partition {partition}: number {number} came where {self._next[partition]} was next")
        self._next[partition] = number + 1
        if due_ns == _NEVER:
            self._ended.add(partition)
        else:
            self._due_ns.append(due_ns)
            self._delays_ns.append(now_ns - due_ns)
        return self.is_whole

    def figures(self, phases: Mapping[str, list[int]]) -> dict[str, float]:
        """`phases`: the times `[first, end)` of each by its name."""
        figures: dict[str, float] = {}
        for name, (first_ns, end_ns) in phases.items():
            both = zip(self._due_ns, self._delays_ns, strict=True)
            found = [delay for due_ns, delay in both if first_ns <= due_ns < end_ns]
            figures[f"{name}_records"] = len(found)
            figures[f"{name}_p50_ms"] = percentile(found, 0.5) / 1e6
            figures[f"{name}_p99_ms"] = percentile(found, 0.99) / 1e6
            figures[f"{name}_max_ms"] = max(found) / 1e6
        return figures


def _ottla(words: Mapping[str, Any]) -> Iterator[tuple[int, bytes]]:
    import ottla

    with ottla.ConsumerConnector(
        bootstrap=words["bootstrap"],
        group=f"{words['topic']}-{time.monotonic_ns()}",
        auto_offset_reset=words["start"],
        consumer_timeout_ms=round(SILENCE_S * 1000),
    ) as connector:
        for message in connector.create_message_streams({words["topic"]: 1})[words["topic"]][0]:
            assert message.value is not None
            yield message.partition, message.value


def _confluent(words: Mapping[str, Any]) -> Iterator[tuple[int, bytes]]:
    from confluent_kafka import Consumer

    consumer: Any = Consumer(
        {
            "bootstrap.servers": words["bootstrap"],
            "group.id": f"{words['topic']}-{time.monotonic_ns()}",
            "auto.offset.reset": words["start"],
            "check.crcs": True,
        }
    )
    consumer.subscribe([words["topic"]])
    try:
        while (message := consumer.poll(SILENCE_S)) is not None:
            if message.error() is not None:
                raise TailBroken(f"{words['topic']}: {message.error()}")
            yield message.partition(), message.value()
    finally:
        consumer.close()


def main(text: str) -> int:
    words = json.loads(text)
    say_to_parent(produce(words) if words["role"] == PRODUCER else consume(words))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
