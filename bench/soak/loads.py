"""The loads of a soak, each a thread with Ottla's own client; they continue through kills of a broker."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from functools import partial
from typing import Final

from bench.loop import Loop
from ottla import Admin, Consumer, Producer
from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.wire.errors import ClientError
from ottla.model.errors import OttlaError

EVENTS: Final = "soak-events"
STATE: Final = "soak-state"
PARTITIONS: Final = 6
REPLICAS: Final = 2
SEGMENT: Final = {"segment.bytes": str(1 << 20)}
# Retention cuts the events to some segments; compaction keeps a value of each key.
EVENT_CONFIGS: Final = SEGMENT | {"retention.bytes": str(4 << 20), "cleanup.policy": "delete"}
STATE_CONFIGS: Final = SEGMENT | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
KEYS: Final = 1000
VALUE: Final = b"v" * 1000
EVENTS_PER_S: Final = 100
STATE_BATCH: Final = 50
TOPIC_EVERY_S: Final = 2.0
MEMBER_STAYS_S: Final = 20.0
RETRY_S: Final = 0.2
POLL_MS: Final = 500
POLLED_MAX: Final = 500


class Tally:
    """What all loads have done since it was last taken; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._latencies_ms: list[float] = []

    def count(self, what: str, how_many: int = 1) -> None:
        with self._lock:
            self._counts[what] += how_many

    def acknowledged(self, latency_ms: float) -> None:
        with self._lock:
            self._counts["events"] += 1
            self._latencies_ms.append(latency_ms)

    def take(self) -> tuple[dict[str, int], list[float]]:
        with self._lock:
            counts, self._counts = dict(self._counts), Counter()
            latencies_ms, self._latencies_ms = self._latencies_ms, []
        return counts, latencies_ms


class SoakLoad(Loop):
    """`step` is called until the end; what a client gives up is counted, and it is called again."""

    def __init__(self, bootstrap: str, tally: Tally) -> None:
        super().__init__()
        self.bootstrap = bootstrap
        self.tally = tally

    def run(self) -> None:
        while not self.is_stopping.is_set():
            try:
                self.work()
            except (ClientError, OttlaError) as problem:
                self.tally.count(f"{type(self).__name__} {type(problem).__name__}")
                self.is_stopping.wait(RETRY_S)

    def work(self) -> None:
        """Until `is_stopping`; a client's error ends it early, and it starts again."""
        raise NotImplementedError


class PacedEvents(SoakLoad):
    """Messages of 1 kB at even distances, acknowledged by all replicas; latencies count from when one was due."""

    def work(self) -> None:
        with Producer[bytes, bytes](self.bootstrap, linger_ms=0) as producer:
            due_s = time.monotonic()
            for number in itertools.count():
                if self.is_stopping.wait(max(0.0, due_s - time.monotonic())):
                    return
                delivery = producer.send(EVENTS, VALUE, partition=number % PARTITIONS)
                delivery.add_done_callback(partial(self._on_done, due_s))
                due_s += 1 / EVENTS_PER_S

    def _on_done(self, due_s: float, delivery: Delivery[Receipt]) -> None:
        if delivery.error() is None:
            self.tally.acknowledged((time.monotonic() - due_s) * 1000)
        else:
            self.tally.count("events lost")


class State(SoakLoad):
    """Transactions of a batch of new values of some keys, in a compacted topic."""

    def work(self) -> None:
        with Producer[bytes, bytes](self.bootstrap, transactional_id="soak-state") as producer:
            producer.init_transactions()
            for number in itertools.count():
                if self.is_stopping.wait(0.1):
                    return
                producer.begin_transaction()
                keys = [b"%d" % ((number * STATE_BATCH + index) % KEYS) for index in range(STATE_BATCH)]
                producer.send(STATE, [VALUE] * STATE_BATCH, keys=keys)
                producer.commit_transaction()
                self.tally.count("transactions")


class Member(SoakLoad):
    """A member of a group that reads and commits everything, leaves after a while, and joins again."""

    def __init__(self, bootstrap: str, tally: Tally, group: str, stays_s: float) -> None:
        super().__init__(bootstrap, tally)
        self._group = group
        self._stays_s = stays_s

    def work(self) -> None:
        until_s = time.monotonic() + self._stays_s
        with Consumer[bytes, bytes](
            self.bootstrap, group=self._group, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.subscribe([EVENTS, STATE])
            self.tally.count("joins")
            while not self.is_stopping.is_set() and time.monotonic() < until_s:
                self.tally.count("read", len(consumer.poll_many(POLLED_MAX, POLL_MS)))


class Topics(SoakLoad):
    """A topic is made, written to, grown and deleted."""

    def work(self) -> None:
        with Admin(self.bootstrap) as admin, Producer[bytes, bytes](self.bootstrap) as producer:
            for number in itertools.count():
                if self.is_stopping.wait(TOPIC_EVERY_S):
                    return
                name = f"soak-short-{time.monotonic_ns()}-{number}"
                admin.create_topic(name, 3, REPLICAS)
                try:
                    producer.send(name, [VALUE] * 10, partition=number % 3).wait(30_000)
                    self.tally.count("topics")
                finally:
                    admin.delete_topics([name])


def make_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(EVENTS, PARTITIONS, REPLICAS, EVENT_CONFIGS)
        admin.create_topic(STATE, PARTITIONS, REPLICAS, STATE_CONFIGS)


def all_loads(bootstrap: str, tally: Tally) -> list[SoakLoad]:
    """Two groups: one whose members come and go, one whose single member stays."""
    forever_s = float("inf")
    return [
        PacedEvents(bootstrap, tally),
        State(bootstrap, tally),
        Member(bootstrap, tally, "soak-moving", MEMBER_STAYS_S),
        Member(bootstrap, tally, "soak-moving", 1.7 * MEMBER_STAYS_S),
        Member(bootstrap, tally, "soak-still", forever_s),
        Topics(bootstrap, tally),
    ]
