"""kafkajs and @platformatic/kafka: test programs over them, with the packages that npm installs into a cache."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.unavailable import PeerUnavailable

SOURCES: Final = Path(__file__).with_name("js")
INSTALL_TIMEOUT_S: Final = 300
# The Node version that @platformatic/kafka 1.35 requires.
NODE_VERSION_MIN: Final = (20, 19, 4)


@cache
def javascript_scenarios(program: str) -> list[str]:
    """The command that takes bootstrap, prefix and scenarios; `program` is a file's stem.  Raises PeerUnavailable."""
    return [_node(), str(install() / f"{program}.mjs")]


def install() -> Path:
    """The directory of the test programs and their packages.  Raises PeerUnavailable."""
    _node()
    npm = shutil.which("npm")
    if npm is None:
        raise PeerUnavailable("no npm command (the JavaScript clients are npm packages)")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:8]

    def bring(fresh: Path) -> None:
        shutil.copytree(SOURCES, fresh, dirs_exist_ok=True)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(
                command, cwd=fresh, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerUnavailable(f"npm did not bring the JavaScript clients within {INSTALL_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise PeerUnavailable(f"npm could not bring the JavaScript clients: {done.stderr.strip()[-500:]}")

    return keep_in_cache(f"javascript-clients-{digest}", bring)


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise PeerUnavailable("no node command (the JavaScript clients run in Node.js)")
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=60)
    version = tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:3])
    if version < NODE_VERSION_MIN:
        oldest = ".".join(map(str, NODE_VERSION_MIN))
        raise PeerUnavailable(f"Node.js {done.stdout.strip()} is older than {oldest}, which @platformatic/kafka needs")
    return node
