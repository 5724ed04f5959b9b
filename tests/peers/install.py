"""Installs the dependencies of the interop tests that pip cannot install.

    python -m tests.peers.install downloads    for many tests, in seconds: Apache Kafka, kcat
    python -m tests.peers.install builds       for one test file each, in minutes: clients
    python -m tests.peers.install suites       for tests of `./dev suites` in addition: tests and programs of others

An unavailable dependency is reported with its reason, and the tests that need it skip: no failure here.  A test that
needs a build while it is under way waits for it (`tests.peers.cache`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.interop.clients import javascript_client
from tests.interop.clients.go_client import go_scenarios, kgo_tests
from tests.interop.clients.java_client import FORMER_VERSION, VERSION, java_scenarios
from tests.interop.clients.spark_connector import connector_jars
from tests.interop.exactly_once.killed_program import flink_program, streams_program
from tests.interop.librdkafka.build import runner_dir
from tests.peers import kafka_jars, kcat
from tests.peers.apache_kafka import archive_broker
from tests.peers.java_tool import archive_tools
from tests.peers.spark_classes import archive_spark
from tests.peers.spark_versions import install_earlier
from tests.peers.unavailable import PeerUnavailable

Bring = Callable[[], object]

DOWNLOADS: Final[Mapping[str, Bring]] = {
    "Apache Kafka": kafka_jars.install,
    "Apache Kafka's tools": partial(kafka_jars.install, kafka_jars.TOOLS_POM),
    "kcat": kcat.install,
}
# In the order in which their tests run.
BUILDS: Final[Mapping[str, Bring]] = {
    # First: each start of a broker or a tool after that is shorter.
    "Apache Kafka's tools' archived classes": archive_tools,
    "Apache Kafka's archived classes": archive_broker,
    f"Java's client {VERSION}": partial(java_scenarios, VERSION),
    "franz-go": go_scenarios,
    "Spark's archived classes": archive_spark,
    "the JavaScript clients": javascript_client.install,
}
SUITES: Final[Mapping[str, Bring]] = {
    "Spark's archived classes": archive_spark,
    "librdkafka's tests": runner_dir,
    f"Java's client {FORMER_VERSION}": partial(java_scenarios, FORMER_VERSION),
    "Spark's Kafka connector": connector_jars,
    "franz-go's tests": kgo_tests,
    "Kafka Streams": streams_program,
    "Flink": flink_program,
    "earlier releases of Spark": install_earlier,
}
# An archive that could not be written, and a JVM that did not end in time.
OF_ARCHIVES: Final = (OSError, subprocess.TimeoutExpired)
# Builds yield the processor to tests that run beside them.
BUILD_NICENESS: Final = 5


def bring(name: str, how: Bring) -> None:
    began_s = time.monotonic()
    try:
        how()
        outcome = f"{name}, {time.monotonic() - began_s:.0f} s"
    except (PeerUnavailable, kafka_jars.KafkaUnavailable, kcat.KcatUnavailable, *OF_ARCHIVES) as reason:
        outcome = f"no {name}: {reason}"
    sys.stderr.write(f"peers: {outcome}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    match arguments:
        case ["downloads"]:
            wanted = DOWNLOADS
        case ["builds"]:
            wanted = BUILDS
            os.nice(BUILD_NICENESS)
        case ["suites"]:
            wanted = SUITES
            os.nice(BUILD_NICENESS)
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    # On SIGTERM it removes its incomplete files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name, how in wanted.items():
        bring(name, how)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
