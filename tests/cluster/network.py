"""Processes in network namespaces, connected by one bridge in the run's own namespace, with walls between them.

The run itself is at the bridge and is never cut off, so that it can watch both sides.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Flag, auto
from pathlib import Path
from typing import Final

from ottla.testing.running import Place
from tests.cluster.lossy_links import READY, LinkFigures, LinkQuality

_BRIDGE: Final = "switch"
_PREFIX: Final = "10.99.0"
_WATCHER: Final = 254
# A dropped packet gets no answer: an address on this bridge that is silent for this long is cut off.
_ANSWERED_WITHIN_S: Final = 0.5
_TRIAL: Final = """\
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), float(sys.argv[2]))
except ConnectionRefusedError:
    print("reached")
except OSError:
    pass
"""
_TABLE: Final = "table inet walls"


class Direction(Flag):
    """Which packets a wall drops, from the view of its node."""

    IN = auto()
    OUT = auto()
    BOTH = IN | OUT


class Network:
    """Created in the namespace of the run: `isolation.enter` first.  `directory` is removed with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number_of: dict[str, int] = {}
        _run("ip", "link", "set", "dev", "lo", "up")
        _run("ip", "link", "add", "name", _BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{_PREFIX}.{_WATCHER}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", "dev", _BRIDGE, "up")

    def add(self, name: str) -> Place:
        """A namespace for a process, or several."""
        number = self._number_of[name] = len(self._number_of) + 1
        namespace = self._namespace(name)
        Path(namespace).touch()
        _run("unshare", f"--net={namespace}", "true")
        outside, inside = f"port{number}", f"node{number}"
        _run("ip", "link", "add", "name", outside, "type", "veth", "peer", "name", inside)
        _run("ip", "link", "set", "dev", outside, "master", _BRIDGE, "up")
        _run("ip", "link", "set", "dev", inside, "netns", namespace)
        self._in(name, "ip", "address", "add", f"{self.address(name)}/24", "dev", inside)
        self._in(name, "ip", "link", "set", "dev", inside, "up")
        self._in(name, "ip", "link", "set", "dev", "lo", "up")
        return self.place(name)

    def place(self, name: str) -> Place:
        return Place(self.address(name), self._enter(name))

    def address(self, name: str) -> str:
        return f"{_PREFIX}.{self._number_of[name]}"

    def wall(self, name: str, others: Iterable[str], direction: Direction = Direction.BOTH) -> None:
        """Drop what `name` gets from `others`, what it sends to them, or both.  One wall at a node at a time."""
        addresses = ", ".join(self.address(other) for other in others)
        chains = []
        if Direction.IN in direction:
            rule = f"ip saddr {{ {addresses} }} counter drop;"
            chains.append(f"chain received {{ type filter hook input priority 0; {rule} }}")
        if Direction.OUT in direction:
            rule = f"ip daddr {{ {addresses} }} counter drop;"
            chains.append(f"chain sent {{ type filter hook output priority 0; {rule} }}")
        self._in(name, "nft", f"{_TABLE} {{\n" + "\n".join(chains) + "\n}")

    def open(self, name: str) -> int:
        """Remove the node's wall; return how many packets it has dropped."""
        listed = self._in(name, "nft", "list", *_TABLE.split())
        self._in(name, "nft", "delete", *_TABLE.split())
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", listed))

    @contextmanager
    def degraded(self, names: Iterable[str], quality: LinkQuality, seed: int) -> Iterator[Callable[[], LinkFigures]]:
        """All packets between these are delayed, lost and duplicated.

        Yields a function that ends it and returns its figures; leaving the context ends it, too.
        """
        nodes = [f"{self._namespace(name)}={self.address(name)}" for name in names]
        command = (sys.executable, "-m", "tests.cluster.lossy_links", str(seed), *map(str, quality), *nodes)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as switch:
            assert switch.stdout is not None
            if switch.stdout.readline().strip() != READY:
                raise RuntimeError(f"{' '.join(command)} did not start")

            def end() -> LinkFigures:
                output, _ = switch.communicate()
                return LinkFigures(**json.loads(output))

            yield end

    def open_all(self) -> None:
        """Remove every remaining wall."""
        for name in self._number_of:
            self._in(name, "nft", "flush", "ruleset")

    def close(self) -> None:
        """Remove the files; the namespaces end with the run's processes."""
        for name in self._number_of:
            _run("umount", self._namespace(name))
        shutil.rmtree(self._directory)

    def reaches(self, name: str, other: str) -> bool:
        """Whether a packet and its answer pass between the two."""
        trial = (sys.executable, "-S", "-E", "-c", _TRIAL, self.address(other), str(_ANSWERED_WITHIN_S))
        return self._in(name, *trial).strip() == "reached"

    def _namespace(self, name: str) -> str:
        return str(self._directory / name)

    def _enter(self, name: str) -> tuple[str, ...]:
        return "nsenter", f"--net={self._namespace(name)}", "--"

    def _in(self, name: str, *command: str) -> str:
        return _run(*self._enter(name), *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
