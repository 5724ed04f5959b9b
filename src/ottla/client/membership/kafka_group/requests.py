"""What a member asks its coordinator for: one request at a time."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from ottla.protocol.api import ApiKey


class Purpose(Enum):
    TOPICS = "topics"
    OFFSETS = "offsets"
    COMMIT = "commit"
    MEMBERSHIP = "membership"


class Ask(NamedTuple):
    """A request.  `message` gives it in the version that both sides know, `at_least` of which it needs."""

    purpose: Purpose
    api: ApiKey
    message: Callable[[int], object]
    answer: type
    timeout_ms: float
    at_least: int = 0
