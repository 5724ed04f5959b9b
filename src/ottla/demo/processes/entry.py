"""The entry point of every process of the demo."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.demo.messages import Failed, send_message
from ottla.model.errors import OttlaError

T = TypeVar("T")

DID_NOT: Final = 1


def run_task(kind: type[T], work: Callable[[T], None]) -> None:
    """Do the task of the command line's one argument.  A known failure is reported; a bug has its traceback."""
    task = kind(**json.loads(sys.argv[1]))
    try:
        work(task)
    except OttlaError as error:
        send_message(Failed(str(error)))
        sys.exit(DID_NOT)
