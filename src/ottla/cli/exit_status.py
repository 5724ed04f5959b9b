"""The exit statuses of the command, as scripts know them."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
CALLED_WRONGLY: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
