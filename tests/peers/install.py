"""Brings what the interop tests want and pip cannot give: python -m tests.peers.install.

What cannot be had is reported with its reason, and the tests that need it skip: that is no failure here.
"""

from __future__ import annotations

import sys

from tests.peers import kcat
from tests.peers.kafka_jars import KafkaUnavailable, install, kafka_version


def main() -> int:
    try:
        sys.stderr.write(f"peers: Apache Kafka {kafka_version()} in {install()}\n")
    except KafkaUnavailable as reason:
        sys.stderr.write(f"peers: no Apache Kafka: {reason}\n")
    try:
        kcat.install()
        sys.stderr.write(f"peers: kcat in {kcat.find_kcat()}\n")
    except kcat.KcatUnavailable as reason:
        sys.stderr.write(f"peers: no kcat: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
