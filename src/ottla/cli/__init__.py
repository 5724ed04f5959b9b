"""The command `ottla`.  A verb's module is imported when the verb is called."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from ottla.cli.exit_status import INTERRUPTED


def main() -> NoReturn:
    """The entry of the installed command."""
    try:
        from ottla.cli.program import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # during the import
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Everything has been cleaned up.  Another Ctrl-C would only end the interpreter by the signal while it exits.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)
