"""One producer or one consumer by confluent-kafka (librdkafka), in a process of its own: prints one JSON object.

python -m bench.paper.librdkafka_client produce|consume BOOTSTRAP TOPIC BATCH WARMUP_S SECONDS
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Final

from bench.raw_client.load import VALUE_BYTES, LoadFailed

VALUE: Final = bytes(ord("a") + index % 26 for index in range(VALUE_BYTES))
OVERTIME_S: Final = 60
DRAIN_S: Final = 60
# How often the clock is looked at, in messages: far below a millisecond of them.
MESSAGES_PER_LOOK: Final = 50
CONSUME_MESSAGES: Final = 1000
# What waits in the client while five batches are on their way: enough that none is late, little enough to drain soon.
QUEUED_BATCHES: Final = 200


class Window:
    """Opens after the warm-up, closes `seconds` later; knows the counts at both moments."""

    def __init__(self, warmup_s: float, seconds: float) -> None:
        self._opens_at = time.monotonic() + warmup_s
        self._seconds = seconds
        self._opened: tuple[float, int, float] | None = None
        self._closed: tuple[float, int, float] | None = None

    def is_over(self, count: int) -> bool:
        now = time.monotonic()
        if self._opened is None:
            if now >= self._opens_at:
                self._opened = (now, count, time.process_time())
        elif self._closed is None and now - self._opened[0] >= self._seconds:
            self._closed = (now, count, time.process_time())
        return self._closed is not None

    def result(self, total: int) -> dict[str, float]:
        assert self._opened is not None, "the window never opened"
        assert self._closed is not None, "the window never closed"
        seconds = self._closed[0] - self._opened[0]
        messages = self._closed[1] - self._opened[1]
        return {
            "seconds": seconds,
            "messages": messages,
            "messages_per_s": messages / seconds,
            "messages_total": total,
            "client_cpu_share": (self._closed[2] - self._opened[2]) / seconds,
        }


def produce(bootstrap: str, topic: str, batch: int, window: Window) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "max.in.flight": 5,
            "batch.num.messages": batch,
            "linger.ms": 0 if batch == 1 else 5,
            "queue.buffering.max.messages": QUEUED_BATCHES * batch,
        }
    )
    sent = 0
    while not window.is_over(sent - len(producer)):
        for _ in range(MESSAGES_PER_LOOK):
            try:
                producer.produce(topic, VALUE, partition=0)
                sent += 1
            except BufferError:  # its queue is full: the broker is what is measured
                producer.poll(0.005)
        producer.poll(0)
    if producer.flush(DRAIN_S) > 0:
        raise LoadFailed(f"not everything was acknowledged within {DRAIN_S} s")
    return window.result(sent)


def consume(bootstrap: str, topic: str, window: Window) -> dict[str, float]:
    """From start to end, again and again."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": CONSUME_MESSAGES * VALUE_BYTES,
        }
    )
    start = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(start, timeout=30)
    consumer.assign([start])
    received = 0
    while not window.is_over(received):
        messages = consumer.consume(CONSUME_MESSAGES, 1.0)
        received += len(messages)
        if messages and (messages[-1].offset() or 0) >= end - 1:
            consumer.seek(start)
    consumer.close()
    return window.result(received)


def run_librdkafka_client(
    mode: str, bootstrap: str, topic: str, batch: int, warmup_s: float, seconds: float
) -> dict[str, float]:
    """One load to its end.  Raises LoadFailed."""
    words = [mode, bootstrap, topic, str(batch), str(warmup_s), str(seconds)]
    command = [sys.executable, "-m", "bench.paper.librdkafka_client", *words]
    timeout_s = warmup_s + seconds + DRAIN_S + OVERTIME_S
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"librdkafka {' '.join(words)}: not done after {timeout_s:g} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"librdkafka {' '.join(words)}: {done.stderr.strip()[-1000:]}")
    return {name: float(value) for name, value in json.loads(done.stdout).items()}


def main(words: list[str]) -> int:
    mode, bootstrap, topic, batch, warmup_s, seconds = words
    window = Window(float(warmup_s), float(seconds))
    if mode == "produce":
        result = produce(bootstrap, topic, int(batch), window)
    else:
        result = consume(bootstrap, topic, window)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
