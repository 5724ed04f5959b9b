"""Earlier releases of PySpark, each in a virtual environment that has all other packages of this one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.unavailable import PeerUnavailable
from tests.quick_java import SPARK_OPTIONS

ROOT: Final = Path(__file__).resolve().parents[2]
# Those that pyproject.toml allows, without the newest, which this environment has.
EARLIER: Final = ("4.0", "4.1", "4.2")
# pip downloads 450 MB and builds a wheel of it.
INSTALLED_WITHIN_S: Final = 900
ARCHIVED_WITHIN_S: Final = 700
_ERRORS_SHOWN_CHARS: Final = 2_000


def python_with(version: str) -> Path:
    """The Python of an environment with the newest PySpark of that version.  Raises PeerUnavailable."""
    # It refers to this environment, and is for the same Python.
    place = hashlib.sha256(f"{sys.prefix}\0{sys.version}".encode()).hexdigest()[:8]
    environment = keep_in_cache(f"spark-{version}-{place}", partial(_bring, version), INSTALLED_WITHIN_S)
    return environment / "bin" / "python"


def install_earlier() -> None:
    """Raises PeerUnavailable."""
    for version in EARLIER:
        archive_classes(python_with(version))


def archive_classes(python: Path) -> None:
    """The archive of the classes of its Spark, beside it: another Spark's would not be used."""
    program = "from tests.peers.spark_classes import archive_spark; archive_spark()"
    _run([python, "-c", program], ARCHIVED_WITHIN_S)


def environment_of(python: Path) -> dict[str, str]:
    """The variables of a process of that environment."""
    # Options of this environment's Java and of this run of pytest are not that one's.
    kept = {
        name: value for name, value in os.environ.items() if name != SPARK_OPTIONS and not name.startswith("PYTEST_")
    }
    return kept | {"PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", "")]), "VIRTUAL_ENV": sys.prefix}


def _bring(version: str, fresh: Path) -> None:
    python = fresh / "bin" / "python"
    _run([sys.executable, "-m", "venv", "--without-pip", fresh], INSTALLED_WITHIN_S)
    (packages,) = fresh.glob("lib/python*/site-packages")
    # Its own packages are found first.  Links to source trees that the other folder has are followed, too.
    others = sysconfig.get_path("purelib")
    packages.joinpath("others.pth").write_text(f"import site; site.addsitedir({others!r})\n")
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-compile", f"pyspark=={version}.*"]
    _run([sys.executable, "-m", "pip", "--python", python, *install], INSTALLED_WITHIN_S)


def _run(command: list[str | Path], within_s: float) -> None:
    python = Path(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment_of(python),
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{command[0]} did not end: {error}") from None
    if done.returncode != 0:
        raise PeerUnavailable(f"{' '.join(map(str, command))} failed: {done.stderr[-_ERRORS_SHOWN_CHARS:]}")
