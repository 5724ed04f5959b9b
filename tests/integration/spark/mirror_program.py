"""A mirror on Spark as a program, to be killed: SOURCE TARGET TOPIC RATE."""

from __future__ import annotations

import sys

import ottla.spark
from ottla.mirror import MirrorOptions, Names
from ottla.spark.mirror import SparkMirror


def main() -> None:
    source, target, topic, rate = sys.argv[1:]
    options = MirrorOptions(topics=Names((topic,)), session_timeout_ms=1000, rate_bytes_s=int(rate))
    SparkMirror(ottla.spark.session("mirror", master="local[2]"), source, target, options).run()


if __name__ == "__main__":
    main()
