"""The seven levels of compatibility, and the modes of a subject."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Level(StrEnum):
    """BACKWARD: the new schema reads what the last one wrote; FORWARD: the last one reads what the new one writes;
    FULL: both.  The transitive levels compare with all versions of the subject.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))


DEFAULT_LEVEL: Final = Level.BACKWARD


class Mode(StrEnum):
    """Whether a subject accepts changes."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"


DEFAULT_MODE: Final = Mode.READWRITE
