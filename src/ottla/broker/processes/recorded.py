"""The broker processes that a supervisor has started, in a file: the next supervisor finds those that still run.

A process is named by its id and the moment of its start, since ids are used again.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.model.identifiers import NodeId
from ottla.runtime.disk import Disk, read_file, replace_file

RUNNING_FILE: Final = "running.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# In /proc/PID/stat after the command's name: its state, and 19 fields later its start in clock ticks since the boot.
_STATE_FIELD: Final = 0
_START_FIELD: Final = 19
_ENDED_STATES: Final = frozenset({"Z", "X"})


class BrokerProcess(NamedTuple):
    """A process that a supervisor has started, with which command and which `fingerprint` of what the command names.

    `is_ready`: it has reported that it serves.
    """

    node_id: NodeId
    pid: int
    start_ticks: int
    command: tuple[str, ...]
    fingerprint: str = ""
    is_ready: bool = False


def start_ticks_of(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None for one that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name may hold spaces and brackets.
    words = text.rpartition(")")[2].split()
    return None if words[_STATE_FIELD] in _ENDED_STATES else int(words[_START_FIELD])


def descriptor_of(process: BrokerProcess) -> int | None:
    """A descriptor that is readable when the process has ended; None when it has.  Raises `OSError`."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    # In this order: from here on the id cannot become that of another process.
    if start_ticks_of(process.pid) == process.start_ticks:
        return descriptor
    os.close(descriptor)
    return None


def has_ended(descriptor: int, within_s: float) -> bool:
    """Wait for the end of a process."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(within_s * 1_000))


def fingerprint_of(version: str, config: bytes, environment: Mapping[str, str]) -> str:
    """Of what a broker reads beside its command: the package, the file of settings, and settings of the environment."""
    found = hashlib.sha256()
    settings = sorted(f"{name}={text}" for name, text in environment.items() if name.startswith("OTTLA_"))
    for part in (version.encode(), config, *map(os.fsencode, settings)):
        found.update(b"%d:" % len(part) + part)
    return found.hexdigest()


def read_running(disk: Disk, folder: str) -> list[BrokerProcess]:
    """Those of the last supervisor, as far as they may run.  Raises `OSError`."""
    path = f"{folder}/{RUNNING_FILE}"
    if not disk.exists(path):
        return []
    try:
        content = json.loads(read_file(disk, path))
        if content["boot_id"] != _boot_id():
            return []
        return [
            BrokerProcess(
                NodeId(each["node_id"]),
                each["pid"],
                each["start_ticks"],
                tuple(each["command"]),
                each.get("fingerprint", ""),
                each.get("is_ready", False),
            )
            for each in content["processes"]
        ]
    except (ValueError, KeyError, TypeError):
        # Without the record the directories of those that run are refused, as long as they have them.
        return []


def write_running(disk: Disk, folder: str, processes: Iterable[BrokerProcess]) -> None:
    """Raises `OSError`."""
    content = {"boot_id": _boot_id(), "processes": [each._asdict() for each in processes]}
    replace_file(disk, f"{folder}/{RUNNING_FILE}", json.dumps(content).encode() + b"\n")


def _boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()
