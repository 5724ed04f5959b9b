"""What a connector that nobody holds any more does: it leaves its group."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Final

from ottla.client.streams.connector_core import ConnectorCore

CLOSE_TIMEOUT_MS: Final = 30_000


class ConnectorHold:
    """Held by a connector's face and by its streams, and by nothing of the connector itself.

    Its threads would keep what was dropped alive: a member of the group whose messages nobody asks for.  So when the
    last of these is gone the connector is closed, by a thread: this may be any moment of any thread, with any lock.
    """

    __slots__ = ("core", "name")

    def __init__(self, core: ConnectorCore, name: str) -> None:
        self.core: Final = core
        self.name: Final = name

    def __del__(self) -> None:
        if self.core.is_over:
            return
        closing = threading.Thread(
            target=self.core.close, args=(CLOSE_TIMEOUT_MS, threading.get_ident()), name="ottla-close", daemon=True
        )
        with suppress(RuntimeError):  # the process ends, and its threads with it
            closing.start()
        # At last: where warnings are errors it raises.
        warnings.warn(f"{self.name} was not closed", ResourceWarning, stacklevel=1, source=self)
