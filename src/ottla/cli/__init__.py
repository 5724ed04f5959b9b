"""The command `ottla`.  A verb's module is imported when the verb is called."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Final, NoReturn

from ottla.cli.exit_status import INTERRUPTED

# Number, name, mode, and how its replacement is opened when it was closed: using it fails with an error.  Output
# that cannot be written is dropped.
_STANDARD_STREAMS: Final = (
    (0, "stdin", "r", os.O_WRONLY),
    (1, "stdout", "w", os.O_RDONLY),
    (2, "stderr", "w", os.O_WRONLY),
)


def main() -> NoReturn:
    """The entry of the installed command."""
    # Hundreds of modules are imported, of which nothing is garbage; `command_of` enables it again.
    gc.disable()
    try:
        _open_closed_streams()
        from ottla.cli.program import run

        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # during the import
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Everything has been cleaned up.  Another Ctrl-C would only end the interpreter by the signal while it exits.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _open_closed_streams() -> None:
    """Python has None for a stream that was closed (`>&-`), and the next file or socket would get its number."""
    for number, name, mode, how in _STANDARD_STREAMS:
        if getattr(sys, name) is None and os.open(os.devnull, how) == number:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))
