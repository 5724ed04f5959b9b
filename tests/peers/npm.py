"""Packages of npm in a cache, in the versions and with the hashes of a package-lock.json of the tests."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.unavailable import PeerUnavailable

INSTALL_TIMEOUT_S: Final = 300


def find_node(version_min: tuple[int, ...], needed_by: str) -> str:
    """Node.js of PATH, of this version or a newer one.  Raises PeerUnavailable."""
    node = shutil.which("node")
    if node is None:
        raise PeerUnavailable(f"no node command ({needed_by} runs in Node.js)")
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=60)
    version = tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:3])
    if version < version_min:
        oldest = ".".join(map(str, version_min))
        raise PeerUnavailable(f"Node.js {done.stdout.strip()} is older than {oldest}, which {needed_by} needs")
    return node


def install_packages(sources: Path, name: str) -> Path:
    """A copy of `sources`, which has package.json and package-lock.json, with its packages beside them.

    Raises PeerUnavailable.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise PeerUnavailable(f"no npm command (it installs {name})")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources.iterdir()))).hexdigest()[:8]

    def bring(fresh: Path) -> None:
        shutil.copytree(sources, fresh, dirs_exist_ok=True)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(
                command, cwd=fresh, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerUnavailable(f"npm did not bring {name} within {INSTALL_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise PeerUnavailable(f"npm could not bring {name}: {done.stderr.strip()[-500:]}")

    return keep_in_cache(f"{name}-{digest}", bring)
