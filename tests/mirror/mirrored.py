"""Shared by the mirror tests: the contents of a topic, a continuous writer, and a mirror in a process to kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Final

from ottla.client.fetching.messages import Message
from ottla.client.fetching.offsets import LATEST, IsolationLevel, OffsetAnswer, try_list_offsets
from ottla.client.producing.produce_requests import DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Headers, Record
from ottla.runtime.clock import SystemClock
from ottla.testing import consume_all
from ottla.testing.running import pause_process
from tests.eventually import WITHIN_S

Content = tuple[int, bytes | None, bytes | None, Headers]
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD)
# Retention must not delete the records.
TIME_MS: Final = SystemClock().now_ms() - 3_600_000


def content_of(bootstrap: str, topic: str) -> dict[int, list[Content]]:
    """The records of each partition in order, without their offsets."""
    return _content(consume_all(topic, bootstrap=bootstrap, timeout_ms=int(WITHIN_S * 1000)))


def committed_content_of(bootstrap: str, topic: str) -> dict[int, list[Content]]:
    """What a reader of committed records gets, when each transaction has ended."""
    with Cluster(bootstrap) as cluster:
        log = TopicLog(cluster, topic, isolation=IsolationLevel.READ_COMMITTED)
        return _content(log.read_in(log.ranges()))


def _content(messages: Iterable[Message]) -> dict[int, list[Content]]:
    found: dict[int, list[Content]] = {}
    for each in messages:
        found.setdefault(each.partition, []).append((each.timestamp_ms, each.key, each.value, each.headers))
    return found


def copied_count(bootstrap: str, topic: str, partitions_count: int) -> int:
    """The sum of the partitions' ends, where they exist."""
    with Cluster(bootstrap) as cluster:
        asked = {TopicPartition(topic, number): LATEST for number in range(partitions_count)}
        answers = try_list_offsets(cluster, asked).values()
        return sum(each.offset for each in answers if isinstance(each, OffsetAnswer))


def offsets_of(bootstrap: str, topic: str, partition: int = 0) -> dict[bytes | None, int]:
    """The offset of each value."""
    messages = consume_all(topic, bootstrap=bootstrap, timeout_ms=int(WITHIN_S * 1000))
    return {each.value: each.offset for each in messages if each.partition == partition}


def batch_of(values: Sequence[bytes], codec: Codec = Codec.NONE, key: bytes | None = None) -> bytearray:
    rows = [Record(0, TIME_MS + at, key, value, (("n", str(at).encode()),)) for at, value in enumerate(values)]
    return build_batch(rows, codec)


def write(bootstrap: str, topic: str, values: Sequence[bytes], *, partition: int = 0, key: bytes | None = None) -> int:
    """One batch with these values; its base offset."""
    with Cluster(bootstrap) as cluster, RawProducer(cluster) as producer:
        producer.send(TopicPartition(topic, partition), batch_of(values, key=key))
        (result,) = producer.flush()
    assert result.status is DeliveryStatus.ACKNOWLEDGED, result
    return result.base_offset


class Writer:
    """Writes numbered records to every partition until it is closed, with all codecs; errors are raised at the end."""

    def __init__(
        self, bootstrap: str, topic: str, partitions_count: int, *, pause_s: float = 0.002, records_max: int = 7
    ) -> None:
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(topic, number) for number in range(partitions_count)]
        self._pause_s = pause_s
        self._records_max = records_max
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None
        self.records_count = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            options = ProducerOptions(delivery_timeout_ms=int(WITHIN_S * 1000))
            with Cluster(self._bootstrap) as cluster, RawProducer(cluster, options) as producer:
                round_number = 0
                while not self._ends.wait(self._pause_s):
                    round_number += 1
                    count = 1 + round_number % self._records_max
                    values = [b"%d-%d" % (round_number, number) for number in range(count)]
                    for partition in self._partitions:
                        producer.send(partition, batch_of(values, CODECS[round_number % len(CODECS)]))
                        self.records_count += count
                    self._check(producer.poll(0))
                self._check(producer.flush())
        except BaseException as error:  # noqa: BLE001 (the test must report it)
            self._failure = error

    @staticmethod
    def _check(results: Sequence[object]) -> None:
        for result in results:
            assert getattr(result, "status", None) is DeliveryStatus.ACKNOWLEDGED, result


class MirrorProcess:
    """`ottla mirror run` as a separate process; `kill` is kill -9."""

    def __init__(self, source: str, target: str, *flags: str, module: str = "ottla") -> None:
        command = [sys.executable, "-m", module, "mirror", "run", "--source", source, "--target", target, *flags]
        self._process = subprocess.Popen(
            [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def suspend(self) -> None:
        pause_process(self._process)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> str:
        """Its output so far."""
        self._process.kill()
        _, said = self._process.communicate(timeout=WITHIN_S)
        return said

    def stop(self) -> dict[str, object]:
        """Stop it regularly; return its report."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> dict[str, object]:
        written, said = self._process.communicate(timeout=2 * WITHIN_S)
        assert self._process.returncode == 0, said
        report = json.loads(written)
        assert isinstance(report, dict)
        return report

    def read_said(self) -> IO[str]:
        assert self._process.stderr is not None
        return self._process.stderr


@contextmanager
def mirror_process(source: str, target: str, *flags: str) -> Iterator[MirrorProcess]:
    process = MirrorProcess(source, target, *flags)
    try:
        yield process
    finally:
        if process.is_running:
            process.kill()
