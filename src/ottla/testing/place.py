"""Where the process of a test runs: on this machine's loopback unless the test has namespaces of its own."""

from __future__ import annotations

from typing import Final, NamedTuple


class Place(NamedTuple):
    """The address that a process listens on, and the words before its command: those of `nsenter`, for example.

    They must end in the process itself (an `exec`), since it is signalled by the id of what was started.
    """

    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


LOOPBACK: Final = Place()
