"""Archives of classes (AppCDS), from which a JVM maps what it otherwise reads from jars, verifies and links.

`python -m tests.peers.install` makes them.  Without one a JVM starts as usual, only slower: and so it does with one
that another Java or other jars made, which it ignores.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

# A JVM that ignores an archive says so on standard output, where a tool's own output is expected.
_SILENT: Final = "-Xlog:disable"
CHECKED_WITHIN_S: Final = 60


def archive_path(directory: Path, name: str, java: Path) -> Path:
    """Of the classes of that name, for this very Java."""
    java = java.resolve()
    release = java.parent.parent / "release"
    version = release.read_bytes() if release.is_file() else bytes(java)
    return directory / f"classes-{name}-{hashlib.sha256(version).hexdigest()[:8]}.jsa"


def options_of(archive: Path) -> tuple[str, ...]:
    """The options of a JVM that maps this archive, if there is one."""
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", _SILENT) if archive.is_file() else ()


def make_archive(archive: Path, java: Path, run: Callable[[Sequence[str]], str]) -> None:
    """Make it, unless it is there.  `run` starts a JVM with these options and stops it regularly: then it writes the
    archive.  It returns the class path of that JVM.

    An archive that this Java does not accept, for example of a JVM that was killed meanwhile, is not kept.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.is_file():
            return
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as scratch:
            fresh = Path(scratch) / "fresh.jsa"
            class_path = run((f"-XX:ArchiveClassesAtExit={fresh}", _SILENT))
            if fresh.is_file() and _is_accepted(fresh, java, class_path):
                fresh.rename(archive)


def _is_accepted(archive: Path, java: Path, class_path: str) -> bool:
    command = [str(java), f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-cp", class_path, "-version"]
    return subprocess.run(command, capture_output=True, timeout=CHECKED_WITHIN_S, check=False).returncode == 0
