"""Apache Kafka's Java client of any release: downloaded by Maven, and a test program compiled against it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import find_java
from tests.peers.maven import copy_dependencies
from tests.peers.unavailable import PeerUnavailable

SOURCES: Final = Path(__file__).with_name("java")
VERSION: Final = "4.4.0"
# The last release of the major version before; its tests are of `./dev suites`.
FORMER_VERSION: Final = "3.9.2"


def java_scenarios(version: str) -> list[str]:
    """The command that takes bootstrap, prefix and scenarios.  Raises PeerUnavailable or KafkaUnavailable."""
    return java_program(version, "Scenarios")


@cache
def java_program(version: str, main_class: str) -> list[str]:
    """The command of one of the test programs.  Raises PeerUnavailable or KafkaUnavailable."""
    options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    home = compiled(SOURCES, f"java-client-{version}", {"kafka.version": version})
    return [find_java(), *options, "-cp", f"{home}:{home}/*", main_class]


def compiled(sources: Path, name: str, properties: Mapping[str, str] = MappingProxyType({})) -> Path:
    """A directory of the cache with the classes of all programs in `sources` and the jars of its pom.xml.

    Raises PeerUnavailable or KafkaUnavailable.
    """
    find_java()
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerUnavailable("no javac command (our programs over Java clients have to be compiled: install a JDK)")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources.iterdir()))).hexdigest()[:8]

    def bring(fresh: Path) -> None:
        copy_dependencies(sources / "pom.xml", fresh, properties)
        command = [compiler, "-d", str(fresh), "-cp", f"{fresh}/*", *map(str, sources.glob("*.java"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"javac could not compile our programs:\n{done.stderr[-2000:]}")

    return keep_in_cache(f"{name}-{digest}", bring)
