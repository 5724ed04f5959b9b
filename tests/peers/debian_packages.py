"""Debian packages unpacked into a directory: nothing is installed, none of their scripts runs, root is not required."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.peers.unavailable import PeerUnavailable

TIMEOUT_S: Final = 600


def find_version(package: str) -> str:
    """The version that apt would install.  Raises PeerUnavailable where there is none."""
    if not sys.platform.startswith("linux") or shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise PeerUnavailable(f"{package} comes from Debian's packages, and this is no Debian (or Ubuntu)")
    for attempt in ("known lists", "fresh lists"):
        for line in _run(["apt-cache", "policy", package]).splitlines():
            name, _, version = line.strip().partition(": ")
            if name == "Candidate" and version != "(none)":
                return version
        if attempt == "known lists":
            _run(["apt-get", "update", "-qq"])
    raise PeerUnavailable(f"apt knows no package {package}")


def unpack_packages(packages: Sequence[str], into: Path) -> None:
    """Download them and lay out their files below `into`.  Raises PeerUnavailable with the reason."""
    with tempfile.TemporaryDirectory(dir=into.parent, prefix="debs-") as scratch:
        _run(["apt-get", "download", "-qq", *packages], cwd=Path(scratch))
        found = sorted(Path(scratch).glob("*.deb"))
        if len(found) != len(packages):
            raise PeerUnavailable(f"apt brought {len(found)} of {len(packages)} packages: {' '.join(packages)}")
        for package in found:
            _run(["dpkg", "-x", str(package), str(into)])


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{command[0]} did not end within {TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise PeerUnavailable(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
