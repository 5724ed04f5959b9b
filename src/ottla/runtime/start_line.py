"""The line at standard input for which a broker of `ottla serve --processes` waits.

Its supervisor writes it when the process is in its record.  If the supervisor is killed before, the broker finds the
end of its input instead, and must not start: no other supervisor would find it.
"""

from __future__ import annotations

import os
from typing import Final

START_LINE: Final = b"\n"
_STDIN: Final = 0


def may_start() -> bool:
    """Wait for the line, or for the end of the input; standard input is empty from then on."""
    line = os.read(_STDIN, len(START_LINE))
    empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(empty, _STDIN)
    os.close(empty)
    return line == START_LINE
