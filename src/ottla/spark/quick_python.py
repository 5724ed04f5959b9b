"""A Python for the workers of a local session that starts them sooner.

Spark puts `pyspark.zip` first on its workers' path, and Python keeps no bytecode of what it imports from a zip file:
each new worker compiles PySpark again.  A streaming query has workers of its own, so each start of one cost twice the
processor time (1.3 instead of 0.65 s, measured).  This Python finds the same PySpark where it is installed.

It also starts the processes whose module no setting names by programs of our own: those beside streaming queries by
`planner_start`, and daemons, also of planners, by `worker_daemon`.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyspark

_SHIM: Final = """\
#!/bin/sh
PYTHONPATH={packages}${{PYTHONPATH:+:$PYTHONPATH}}
export PYTHONPATH
case "$1 $2" in
"-m pyspark.sql.streaming.python_streaming_source_runner")
    shift
    exec {python} {starter} "$@"
    ;;
"-m pyspark.daemon")
    shift 2
    exec {python} -m ottla.spark.worker_daemon "$@"
    ;;
esac
exec {python} "$@"
"""


@cache
def quick_python() -> str:
    """The program to start; this interpreter itself where PySpark is in no directory, or the system has no `sh`.

    It is gone when this process ends.
    """
    installed = Path(pyspark.__file__).parent
    if os.name != "posix" or not installed.is_dir():
        return sys.executable
    home = Path(tempfile.mkdtemp(prefix="ottla-python-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    # Only PySpark: other packages are found in the order that the user chose.
    packages = home / "packages"
    packages.mkdir()
    (packages / "pyspark").symlink_to(installed)
    return str(write_shim(home / "python", packages))


def write_shim(shim: Path, packages: Path) -> Path:
    """A script that runs this interpreter with `packages` first on its path."""
    starter = find_spec("ottla.spark.planner_start")
    assert starter is not None
    assert starter.origin is not None
    shim.write_text(
        _SHIM.format(
            packages=shlex.quote(str(packages)),
            python=shlex.quote(sys.executable),
            starter=shlex.quote(starter.origin),
        )
    )
    shim.chmod(0o755)
    return shim
