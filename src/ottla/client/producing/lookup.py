"""The look-up of a topic whose partitions a `send` needs."""

from __future__ import annotations

from ottla.client.wire.deadline import Backoff, Deadline
from ottla.client.wire.errors import ClientError


class LookUp:
    """Asked by the sending thread, again and again until there is an answer: partitions, or an `error` that stays.

    `missing_until`: so long the topic may be missing, since it may just have been created.
    """

    def __init__(self, topic: str, backoff: Backoff, missing_until: Deadline) -> None:
        self.topic = topic
        self.missing_until = missing_until
        self.is_done = False
        self.error: ClientError | None = None
        # Why there is no answer yet.
        self.last_problem: ClientError | None = None
        self.next_try_ms: float = 0
        self._backoff = backoff

    def postpone(self, problem: ClientError, now_ms: float) -> None:
        self.last_problem = problem
        self.next_try_ms = now_ms + self._backoff.next_ms()

    def end(self, error: ClientError | None = None) -> None:
        self.is_done = True
        self.error = error
