"""The interpreter of a session's Python tasks.

Spark plans reads and writes of a Python source on the driver, with the very interpreter of the workers: the path in
`PYSPARK_PYTHON`, or the first `python3`.  On the driver that path may lead to no Python, or to one without Ottla.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext

import ottla
from ottla.model.limits import HOUR_MS
from ottla.runtime.clock import SystemClock
from ottla.spark.errors import SparkUserError
from ottla.spark.jvm import jvm_of

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


_SHIM_NAME: Final = "python"
_PACKAGES: Final = "packages"
_NEW: Final = "new-"
_OWN: Final = "ottla-python-of-"
# A folder is named after its home is written, which takes milliseconds.
_NEW_MAX_MS: Final = HOUR_MS
# Of a hash: no two interpreters of a machine share it.
_NAME_CHARS: Final = 16


@cache
def quick_python() -> str:
    """A Python for the workers of a local session that starts them sooner: the program to start.

    Spark puts `pyspark.zip` first on its workers' path, and Python keeps no bytecode of what it imports from a zip
    file: each new worker compiles PySpark again.  A streaming query has its own workers, so each start of one cost
    twice the processor time (1.3 instead of 0.65 s, measured).  This Python finds the same PySpark where it is
    installed.

    It also starts the processes whose module no setting names by programs of Ottla: those beside streaming queries by
    `planner_start`, and daemons, also of planners, by `worker_daemon`.

    It is this interpreter itself where PySpark is in no directory, or the system has no `sh`.

    All processes of a user share it: one of each would be left by every process that is killed.
    """
    installed = Path(pyspark.__file__).parent
    if os.name != "posix" or not installed.is_dir():
        return sys.executable
    shared = _private_folder()
    if shared is None:
        _remove_folders_of_dead_processes()
        own = Path(tempfile.mkdtemp(prefix=f"{_OWN}{os.getpid()}-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        return str(_write_home(own, installed))
    made_of = "\0".join((str(installed), sys.executable, str(_planner_start()), _SHIM))
    home = shared / hashlib.sha256(made_of.encode()).hexdigest()[:_NAME_CHARS]
    if not (home / _SHIM_NAME).exists():
        _remove_abandoned(shared)
        new = Path(tempfile.mkdtemp(prefix=_NEW, dir=shared))
        _write_home(new, installed, home)
        try:
            new.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(new, ignore_errors=True)
    return str(home / _SHIM_NAME)


def _remove_abandoned(shared: Path) -> None:
    """Homes of a PySpark that is gone, and those that a process was killed before it had named."""
    for folder in shared.iterdir():
        is_new = folder.name.startswith(_NEW)
        with contextlib.suppress(OSError):  # another process removed it
            is_old = SystemClock().now_ms() - folder.stat().st_mtime * 1_000 > _NEW_MAX_MS
            if is_old if is_new else not (folder / _PACKAGES / "pyspark").exists():
                shutil.rmtree(folder, ignore_errors=True)


def _remove_folders_of_dead_processes() -> None:
    """Of this user; a process that ends removes its own, and one that is killed does not."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_OWN}*"):
        pid = folder.name.removeprefix(_OWN).partition("-")[0]
        with contextlib.suppress(OSError):
            is_own = folder.lstat().st_uid == os.getuid()
            if is_own and pid.isdecimal() and not _is_alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _private_folder() -> Path | None:
    """The user's, which no other user may write to; None: there is something else at its place."""
    folder = Path(tempfile.gettempdir()) / f"ottla-python-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if is_private else None


def _write_home(folder: Path, installed: Path, final: Path | None = None) -> Path:
    """The shim with its packages, in a folder that has the name `final` later."""
    # Only PySpark: other packages are found in the order that the user chose.
    packages = folder / _PACKAGES
    packages.mkdir()
    (packages / "pyspark").symlink_to(installed)
    return write_shim(folder / _SHIM_NAME, (final or folder) / _PACKAGES)


def write_shim(shim: Path, packages: Path) -> Path:
    """A script that runs this interpreter with `packages` first on its path."""
    shim.write_text(
        _SHIM.format(
            packages=shlex.quote(str(packages)),
            python=shlex.quote(sys.executable),
            starter=shlex.quote(_planner_start()),
        )
    )
    shim.chmod(0o755)
    return shim


def _planner_start() -> str:
    starter = find_spec("ottla.spark.planner_start")
    assert starter is not None
    assert starter.origin is not None
    return starter.origin


# What PySpark takes when nothing is chosen.
PYTHON_DEFAULT: Final = "python3"
_IMPORT: Final = "import ottla.spark.source.data_source"
_IMPORT_TIMEOUT_S: Final = 120


class WorkerPythonMissing(SparkUserError):
    """Spark cannot start the Python of `PYSPARK_PYTHON` on the driver, where reads and writes are planned."""

    hint = (
        "leave PYSPARK_PYTHON unset and let the workers find python3 in the archive: "
        "--conf spark.executorEnv.PATH=./NAME/bin:/usr/local/bin:/usr/bin:/bin with --archives FILE#NAME"
    )


def settle_worker_python(context: SparkContext) -> None:
    """Make sure that what runs on the driver finds this package.

    Where the user chose an interpreter, that one runs; a path into an archive is made to work on the driver too.
    Raises `WorkerPythonMissing`.
    """
    chosen = os.environ.get("PYSPARK_PYTHON", "")
    if chosen and context.pythonExec == chosen:
        if os.sep in chosen and not os.path.isabs(chosen):
            _link_archive(context, Path(chosen))
        return
    if context.pythonExec not in ("", PYTHON_DEFAULT):
        return
    if is_local(context.master or ""):
        # One machine: a virtual environment need not be activated.
        context.pythonExec = quick_python()
    elif not _has_ottla(PYTHON_DEFAULT):
        context.pythonExec = PYTHON_DEFAULT
        _lend_packages(context)


def is_local(master: str) -> bool:
    """Whether everything runs in one process: `local`, `local[4]`, but not `local-cluster[...]`."""
    return master == "local" or master.startswith("local[")


def _has_ottla(python: str) -> bool:
    try:
        done = subprocess.run([python, "-c", _IMPORT], capture_output=True, timeout=_IMPORT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _lend_packages(context: SparkContext) -> None:
    """The driver's `python3` finds this interpreter's packages.  On a worker, paths that it has not are passed over."""
    given = context.environment.get("PYTHONPATH", "")
    # An editable installation is in no folder of packages.
    ours = str(Path(ottla.__file__).parents[1])
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*filter(None, [given]), ours, *packages]))


def _link_archive(context: SparkContext, python: Path) -> None:
    """Spark unpacks `--archives` beside each executor, and on the driver into a folder of its own: link it here."""
    jvm = jvm_of(context)
    here = Path(jvm.java.lang.System.getProperty("user.dir"))
    if (here / python).exists():
        return
    name = python.parts[0]
    unpacked = Path(jvm.org.apache.spark.SparkFiles.getRootDirectory()) / name
    if not (unpacked / Path(*python.parts[1:])).exists():
        raise WorkerPythonMissing(
            f"PYSPARK_PYTHON is {str(python)!r}, and on the driver neither {here} nor an archive has it"
        )
    link = here / name
    try:
        if link.is_symlink() and not link.exists():
            link.unlink()  # a driver that was killed left it
        link.symlink_to(unpacked)
    except OSError as error:
        raise WorkerPythonMissing(
            f"PYSPARK_PYTHON is {str(python)!r}, which the driver needs too, and cannot link: {error}"
        ) from None
    atexit.register(_unlink, link, unpacked)


def _unlink(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        link.unlink()
