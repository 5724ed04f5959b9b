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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.runtime.java import find_java, packaged_java
from tests.peers.class_archives import archive_path, options_of

# Read by spark-submit, which also starts the JVM of a Python program, and never printed on standard error.
SPARK_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_WITHOUT_ARCHIVE: Final = shlex.join(SHORT_LIVED)


def spark_java() -> Path | None:
    """The Java that Spark uses here, if there is one."""
    return find_java(os.environ) or packaged_java()


def spark_archive(java: Path) -> Path:
    """The archive of Spark's classes, which may not exist.  It fits the jars of this environment alone."""
    return archive_path(Path(sys.prefix), "spark", java)


def quick_java() -> Mapping[str, str]:
    """The environment of a program that starts Spark now.  The archive may be made beside the tests."""
    java = spark_java()
    archived = () if java is None else options_of(spark_archive(java))
    return {SPARK_OPTIONS: shlex.join((*SHORT_LIVED, *archived))}


def use_quick_java() -> None:
    """From here on in this process and in those that it starts, unless its caller has given other options."""
    if os.environ.get(SPARK_OPTIONS, _WITHOUT_ARCHIVE) == _WITHOUT_ARCHIVE:
        os.environ.update(quick_java())
