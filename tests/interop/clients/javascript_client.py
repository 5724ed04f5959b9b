"""kafkajs and @platformatic/kafka: test programs over them, with the packages that npm installs into a cache."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.npm import find_node, install_packages

SOURCES: Final = Path(__file__).with_name("js")
# The Node version that @platformatic/kafka 1.35 requires.
NODE_VERSION_MIN: Final = (20, 19, 4)


@cache
def javascript_scenarios(program: str) -> list[str]:
    """The command that takes bootstrap, prefix and scenarios; `program` is a file's stem.  Raises PeerUnavailable."""
    return [_node(), str(install() / f"{program}.mjs")]


def install() -> Path:
    """The directory of the test programs and their packages.  Raises PeerUnavailable."""
    _node()
    return install_packages(SOURCES, "javascript-clients")


def _node() -> str:
    return find_node(NODE_VERSION_MIN, "@platformatic/kafka")
