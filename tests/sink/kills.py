"""The exactly-once sink of Spark while brokers, coordinators, workers and the driver are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.wire.cluster import Cluster
from ottla.testing.cluster import RunningCluster
from tests.eventually import WITHIN_S, eventually
from tests.loads.child import ancestors, kill
from tests.quick_java import quick_java
from tests.sink.judgement import Row, problems_of

SOURCE: Final = "clicks"
TARGET: Final = "copies"
PARTITIONS: Final = 3
LEADER: Final = "leader of the target"
DELIVERIES: Final = "leader of the deliveries"
COORDINATOR: Final = "coordinator"
WORKERS: Final = "workers"
DRIVER: Final = "driver"
BROKER_FAULTS: Final = (LEADER, DELIVERIES, COORDINATOR)
SETTINGS: Final = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "3000",
}
# A driver starts in some seconds, and some more on a busy machine; what stands still for so long has failed.
PROGRESS_WITHIN_S: Final = 240.0
DOWN_S_MAX: Final = 4.0
BATCH_S_MAX: Final = 2.0
RECORDS_PER_S: Final = 600
REST_WITHIN_S: Final = 900.0
QUERY_COMMAND: Final = (sys.executable, "-m", "tests.sink.query")
EXACTLY_ONCE: Final = "exactly-once"


@dataclass(slots=True)
class Outcome:
    """`stops`: queries that Spark ended with an error, each of which was started again."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    stops: list[str] = field(default_factory=list)
    records_count: int = 0
    batches_count: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} x {what}" for what, count in sorted(self.kills.items()))
        verdict = "; ".join(self.problems) or "each record is in the target once, in order"
        return (
            f"seed {self.seed}: {self.kills.total()} kills in {self.took_s:.0f} s ({kills}), "
            f"{len(self.stops)} queries ended with an error, {self.records_count} records in "
            f"{self.batches_count} batches: {verdict}"
        )


class Feed:
    """Writes numbered records to every partition until it is closed; `acknowledged` counts each value."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: Counter[bytes] = Counter()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 300_000}
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(PARTITIONS * 10 / RECORDS_PER_S):
            for partition in range(PARTITIONS):
                for _ in range(10):
                    self._send(partition, number)
                    number += 1
            self._producer.poll(0)
        self._producer.flush()

    def _send(self, partition: int, number: int) -> None:
        with suppress(BufferError):  # while no leader answers
            self._producer.produce(
                SOURCE, b"%d" % number, b"%d" % partition, partition=partition, on_delivery=self._on_delivery
            )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.value() or b""] += 1


class Query:
    """The driver as a process with its JVM and its workers."""

    def __init__(self, bootstrap: str, folder: Path, delivery: str, extent: str) -> None:
        self._output: Final[IO[bytes]] = (folder / "output").open("ab+")
        self._start = self._output.seek(0, os.SEEK_END)
        self._process = subprocess.Popen(
            [*QUERY_COMMAND, bootstrap, SOURCE, TARGET, str(folder / "checkpoint"), delivery, extent],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            env={**os.environ, **quick_java()},
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        self._output.flush()
        self._output.seek(self._start)
        return self._output.read().decode(errors="replace")

    def wait(self, within_s: float) -> int:
        return self._process.wait(within_s)

    def kill(self) -> None:
        """The driver, its JVM and its workers, as with their machine."""
        workers = self._python_processes()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pid in workers:
            kill(pid)

    def kill_workers(self) -> int:
        """What Spark runs in Python now: tasks, or the sink's commit."""
        daemons = self._python_processes()
        workers = [pid for pid in daemons if next(ancestors(pid), 0) in daemons]
        for pid in workers:
            kill(pid)
        return len(workers)

    def close(self) -> None:
        self.kill()
        self._output.close()

    def _python_processes(self) -> set[int]:
        found = {int(path.name) for path in Path("/proc").glob("[0-9]*") if b"pyspark" in _command_line(path)}
        return {pid for pid in found if self._process.pid in ancestors(pid)}


def _command_line(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


class Site:
    """Three brokers, a feed, and the query that must be running."""

    def __init__(
        self, cluster: RunningCluster, folder: Path, delivery: str, outcome: Outcome, chance: random.Random
    ) -> None:
        self._cluster = cluster
        self._delivery = delivery
        self._folder = folder
        self._outcome = outcome
        self._chance = chance
        self._query = self._new_query("follow")

    def strike(self, fault: str) -> None:
        """One kill, in any step of a batch, after which rows must arrive again."""
        self._wait_for_progress()
        time.sleep(self._chance.uniform(0, BATCH_S_MAX))
        if fault == DRIVER:
            self._query.kill()
            self._query.close()
            self._query = self._new_query("follow")
            self._outcome.kills[fault] += 1
        elif fault == WORKERS:
            # Between two batches none may be there.
            killed = eventually(self._query.kill_workers, within_s=WITHIN_S)
            self._outcome.kills[fault] += bool(killed)
        else:
            self._kill_broker(fault)
        self._wait_for_progress()

    def finish(self) -> None:
        """The rest, without a kill."""
        self._query.kill()
        self._query.close()
        while True:
            self._query = self._new_query("rest")
            status = self._query.wait(REST_WITHIN_S)
            if not status:
                return
            self._note_stop()

    def close(self) -> None:
        self._query.close()

    def _kill_broker(self, fault: str) -> None:
        topic, partition = {
            LEADER: (TARGET, self._chance.randrange(PARTITIONS)),
            DELIVERIES: (f"{self.transactional_id}.deliveries", 0),
            COORDINATOR: (TARGET, 0),
        }[fault]
        node_id = self._coordinator() if fault == COORDINATOR else self._cluster.wait_for_leader(topic, partition)
        self._cluster.broker(node_id).kill()
        self._outcome.kills[fault] += 1
        time.sleep(self._chance.uniform(0, DOWN_S_MAX))
        self._cluster.broker(node_id).start()
        # The next kill must leave two replicas in sync.
        self._cluster.wait_until_replicated()

    @property
    def transactional_id(self) -> str:
        metadata = json.loads((self._folder / "checkpoint" / "metadata").read_text())
        return f"ottla-spark-{metadata['id']}"

    def _coordinator(self) -> int:
        with Cluster(self._cluster.bootstrap) as cluster:
            return TransactionAdmin(cluster).coordinator_of(self.transactional_id)

    def _wait_for_progress(self) -> None:
        before = self._last_batch()

        def has_moved() -> bool:
            if not self._query.is_running:
                self._note_stop()
                self._query = self._new_query("follow")
            return self._last_batch() > before

        eventually(has_moved, within_s=PROGRESS_WITHIN_S, every_s=0.1)

    @property
    def batches_count(self) -> int:
        return self._last_batch() + 1

    def _last_batch(self) -> int:
        """Of those that Spark has noted as written, of which it keeps the newest; -1 for none."""
        return max((int(path.name) for path in (self._folder / "checkpoint" / "commits").glob("[0-9]*")), default=-1)

    def _note_stop(self) -> None:
        lines = [line for line in self._query.said.splitlines() if "Error" in line or "Exception" in line]
        self._outcome.stops.append(lines[-1] if lines else "without a reason")
        self._query.close()

    def _new_query(self, extent: str) -> Query:
        return Query(self._cluster.bootstrap, self._folder, self._delivery, extent)


def run(
    kills: Mapping[str, int],
    seed: int,
    note: Callable[[str], None] = lambda text: None,
    *,
    delivery: str = EXACTLY_ONCE,
) -> Outcome:
    """So many kills of each kind, in a random order.  Raises AssertionError when no row arrives after one."""
    chance = random.Random(seed)
    plan = [fault for fault, count in kills.items() for _ in range(count)]
    chance.shuffle(plan)
    outcome, began_s = Outcome(seed), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-sink-") as name,
        RunningCluster(3, settings=SETTINGS) as cluster,
    ):
        folder = Path(name)
        with Cluster(cluster.bootstrap) as client:
            for topic in (SOURCE, TARGET):
                Admin(client).create_topic(topic, PARTITIONS, 3)
        for topic in (SOURCE, TARGET):
            for number in range(PARTITIONS):
                cluster.wait_for_leader(topic, number)
        with Feed(cluster.bootstrap) as feed:
            site = Site(cluster, folder, delivery, outcome, chance)
            try:
                for fault in plan:
                    site.strike(fault)
                    note(f"{time.monotonic() - began_s:.0f} s: {fault}")
                feed.close()
                site.finish()
            finally:
                site.close()
        source, target = (rows_of(cluster.bootstrap, topic) for topic in (SOURCE, TARGET))
        outcome.batches_count = site.batches_count
        outcome.records_count = len(source)
        outcome.problems = problems_of(source, target, feed.acknowledged)
    outcome.took_s = time.monotonic() - began_s
    return outcome


def rows_of(bootstrap: str, topic: str) -> Sequence[Row]:
    """The committed ones, in order of partitions and offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judgement",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        rows: list[Row] = []
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while (message := consumer.poll(WITHIN_S)) is not None:
                error = message.error()
                if error is None:
                    rows.append(Row(message.key() or b"", message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    break
            assert message is not None, f"no end of {topic}-{partition} after {len(rows)} rows"
        return rows
    finally:
        consumer.close()
