"""A group member of confluent-kafka in a separate process that a test may kill; it reports by JSON lines.

    python -m tests.interop.group_member TOPIC '{"bootstrap.servers": ..., "group.id": ...}'

writes a line for each change of its assignment and for each record, and closes at SIGTERM.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType

from confluent_kafka import Consumer, TopicPartition

WITHIN_S = 120.0
ROOT = Path(__file__).resolve().parents[2]


class GroupMember:
    """The process as its test sees it.  `owned` and `read` are its reports so far."""

    def __init__(self, topic: str, bootstrap: str, group_id: str, options: Mapping[str, object] | None = None) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            **(options or {}),
        }
        self.owned: set[int] = set()
        self.assignments_count = 0
        self.read: list[tuple[int, int]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.group_member", topic, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._take_lines, daemon=True)
        self._reader.start()

    def __enter__(self) -> GroupMember:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()

    def leave(self) -> None:
        """Close the consumer regularly."""
        self._process.terminate()
        assert self._process.wait(WITHIN_S) == 0
        self._reader.join()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WITHIN_S)
        self._reader.join()

    def _take_lines(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                what, value = json.loads(line)
                if what == "owned":
                    self.owned = set(value)
                    self.assignments_count += 1
                else:
                    self.read.append(tuple(value))


def _run(topic: str, settings: dict[str, object]) -> None:
    consumer = Consumer(settings)
    owned: set[int] = set()
    is_over = threading.Event()

    def tell(what: str, value: object) -> None:
        sys.stdout.write(json.dumps([what, value]) + "\n")
        sys.stdout.flush()

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.update(each.partition for each in partitions)
        tell("owned", sorted(owned))

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.difference_update(each.partition for each in partitions)
        tell("owned", sorted(owned))

    def on_signal(_: int, __: FrameType | None) -> None:
        is_over.set()

    signal.signal(signal.SIGTERM, on_signal)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    while not is_over.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            tell("read", [message.partition(), message.offset()])
    consumer.close()


if __name__ == "__main__":
    _run(sys.argv[1], json.loads(sys.argv[2]))
