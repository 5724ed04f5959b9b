"""How Java runs for the Spark of a test.

A session of a test lives for a minute or two, and Java's optimising compiler does not pay off: 42 small
queries took 20 s of its processor instead of 47 s.  Nor does loading some ten thousand classes from jars,
where `tests.peers.install` has archived them: a session and its first queries take 9 s of a processor with
the archive and 20 without.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

from ottla.runtime.java import find_java, packaged_java
from tests.peers.class_archives import archive_path, options_of

# Read by spark-submit, which also starts the JVM of a Python program, and never printed on standard error.
SPARK_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def spark_java() -> Path | None:
    """The Java that Spark uses here, if there is one."""
    return find_java(os.environ) or packaged_java()


def spark_archive(java: Path) -> Path:
    """The archive of Spark's classes, which may not exist.  It fits the jars of this environment alone."""
    return archive_path(Path(sys.prefix), "spark", java)


def _options() -> str:
    java = spark_java()
    archived = () if java is None else options_of(spark_archive(java))
    return shlex.join((*SHORT_LIVED, *archived))


QUICK_JAVA: Final = {SPARK_OPTIONS: _options()}
