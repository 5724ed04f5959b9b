"""A program that is killed by SIGKILL and started again, its output kept for the report of a failure."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.interop.clients.java_client import compiled
from tests.peers.kafka_jars import find_java
from tests.peers.peer_process import stop_process

HERE: Final = Path(__file__).parent
JVM_OPTIONS: Final = (
    "-Xmx512M",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# Flink serializes Java's own collections by reflection.
OPENED: Final = ("java.base/java.lang", "java.base/java.util", "java.base/java.util.concurrent", "java.base/java.time")
OUTPUT_SHOWN_CHARACTERS: Final = 4_000


def streams_program() -> Path:
    """The directory of WordCount and its jars.  Raises PeerUnavailable or KafkaUnavailable."""
    return compiled(HERE / "streams", "kafka-streams")


def flink_program() -> Path:
    """The directory of Copy and its jars.  Raises PeerUnavailable or KafkaUnavailable."""
    return compiled(HERE / "flink", "flink")


class KilledProgram:
    """A context manager around one Java program; `start` takes its arguments, which may change."""

    def __init__(self, home: Path, main_class: str, output: Path) -> None:
        opened = [word for each in OPENED for word in ("--add-opens", f"{each}=ALL-UNNAMED")]
        self._command = [find_java(), *JVM_OPTIONS, *opened, "-cp", f"{home}:{home}/*", main_class]
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if error is not None:
            error.add_note(f"{self._output.name}: {self.output[-OUTPUT_SHOWN_CHARACTERS:]}")

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def start(self, arguments: Sequence[str]) -> None:
        assert self._process is None or self._process.poll() is not None, "it is running"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, "it has ended before it was killed"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """By SIGTERM."""
        assert self._process is not None
        stop_process(self._process)
