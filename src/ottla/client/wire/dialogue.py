"""Requests of which each depends on the response before it, as those that open a connection.

A dialogue has no socket and no clock: the connection sends its requests, and can wait for a response in several calls.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from ottla.protocol.api import ApiKey


class Question(NamedTuple):
    """One request.  `version` None: the highest that both sides know, at least `at_least`."""

    api: ApiKey
    message: object
    at_least: int = 0
    version: int | None = None


# Receives the response to each of its requests, or the ClientError or WireError because of which there is none.
Dialogue: TypeAlias = Generator[Question, object, None]
