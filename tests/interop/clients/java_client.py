"""Apache Kafka's Java client of any release: downloaded by Maven, and a test program compiled against it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import find_java
from tests.peers.maven import copy_dependencies
from tests.peers.unavailable import PeerUnavailable

SOURCES: Final = Path(__file__).with_name("java")
VERSIONS: Final = ("3.9.2", "4.4.0")


def java_scenarios(version: str) -> list[str]:
    """The command that takes bootstrap, prefix and scenarios.  Raises PeerUnavailable or KafkaUnavailable."""
    return java_program(version, "Scenarios")


@cache
def java_program(version: str, main_class: str) -> list[str]:
    """The command of one of the test programs.  Raises PeerUnavailable or KafkaUnavailable."""
    java = find_java()
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerUnavailable("no javac command (our program over the Java client has to be compiled: install a JDK)")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:8]

    def bring(fresh: Path) -> None:
        copy_dependencies(SOURCES / "pom.xml", fresh, {"kafka.version": version})
        command = [compiler, "-d", str(fresh), "-cp", f"{fresh}/*", *map(str, SOURCES.glob("*.java"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"javac could not compile our programs:\n{done.stderr[-2000:]}")

    home = keep_in_cache(f"java-client-{version}-{digest}", bring)
    options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [java, *options, "-cp", f"{home}:{home}/*", main_class]
