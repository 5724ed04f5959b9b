"""The key of this broker's session with ZooKeeper, kept in its data directory.

A broker that was killed still has a session, and is live to the others until that times out.  Its next process ends it
at once: the directory's lock proves that the former process is gone.  The file is readable by its owner only, since
whoever has the key can act as the session.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Final

from ottla.coordination.zookeeper.credentials import SessionCredentials
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, read_file, replace_file

log = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper-session"


class SessionFile:
    """Losing it costs a restart the wait for the former session's end, nothing else."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{SESSION_FILE}"

    def read(self) -> SessionCredentials | None:
        """The key that was written last; None where there is none that can be read."""
        try:
            if not self._disk.exists(self._path):
                return None
            content = json.loads(read_file(self._disk, self._path))
            return SessionCredentials(int(content["session_id"]), bytes.fromhex(content["password"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("session_file.unreadable", extra=fields(path=self._path, error=str(error)))
            return None

    def write(self, credentials: SessionCredentials) -> None:
        """Replace the key.  A failure is reported only."""
        content = {"session_id": credentials.session_id, "password": credentials.password.hex()}
        try:
            # Files that the broker makes are for its user only.
            replace_file(self._disk, self._path, json.dumps(content).encode())
        except OSError as error:
            log.warning("session_file.not_written", extra=fields(path=self._path, error=str(error)))

    def remove(self) -> None:
        """The session was ended."""
        with contextlib.suppress(OSError):
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
