"""The command `ottla`.  A verb's module is imported when the verb is called, never for the help of another."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry of the installed command."""
    from ottla.cli.program import run

    sys.exit(run(sys.argv[1:]))
