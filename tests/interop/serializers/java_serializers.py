"""Confluent's Avro serializer and deserializer for Java, and Avro's own rules, as a process that answers lines.

Their jars are not on Maven Central; Apache Pinot's plugin for them is, and has them inside unchanged.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import find_java
from tests.peers.maven import copy_artifact
from tests.peers.unavailable import PeerUnavailable

SOURCE: Final = Path(__file__).with_name("Serializers.java")
ARTIFACT: Final = "org.apache.pinot:pinot-confluent-avro:1.5.0:jar:shaded"


def installed() -> Path:
    """The paths of the jar and of the compiled test program.  Raises PeerUnavailable or KafkaUnavailable."""
    find_java()
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerUnavailable(
            "no javac command (our program over the Java serializers has to be compiled: install a JDK)"
        )
    digest = hashlib.sha256(SOURCE.read_bytes() + ARTIFACT.encode()).hexdigest()[:8]

    def bring(fresh: Path) -> None:
        copy_artifact(ARTIFACT, fresh)
        command = [compiler, "-d", str(fresh), "-cp", f"{fresh}/*", str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"javac could not compile our program:\n{done.stderr[-2000:]}")

    return keep_in_cache(f"java-serializers-{digest}", bring)


class JavaSerializers:
    """`registry_url`: the registry where they look up and register schemas."""

    def __init__(self, registry_url: str) -> None:
        home = installed()
        options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        self._process = subprocess.Popen(
            [find_java(), *options, "-cp", f"{home}:{home}/*", "Serializers", registry_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, *fields: str) -> str:
        """Raises RuntimeError with the text of Java's exception."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(fields) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        if not answer or answer.startswith("error "):
            raise RuntimeError(answer or "the process has ended")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The process ends at the end of its input.
        self._process.communicate()
