"""Metadata answers that are kept as bytes while the topics stay as they are.

An answer for 10,000 partitions takes some 35 ms to make and a request for it 30 bytes: all clients that start together,
or one hostile client, would block all others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from ottla.coordination.topics_view import NO_TOPICS, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.metadata import MetadataResponse

# Smaller answers are too cheap to be worth keeping.
PARTITIONS_COUNT_MIN: Final = 20
ANSWERS_COUNT_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024


class MetadataAnswers:
    """The answers of one view of the topics, the latest used last; a new view empties it."""

    def __init__(self) -> None:
        self._view = NO_TOPICS
        self._bodies: OrderedDict[Hashable, bytes] = OrderedDict()
        self._size_bytes = 0

    def find(self, view: TopicsView, request: Hashable) -> bytes | None:
        """The body that was kept for an equal request; the request must hold all that the answer depends on."""
        if view is not self._view:
            self._forget_all(view)
            return None
        body = self._bodies.get(request)
        if body is not None:
            self._bodies.move_to_end(request)
        return body

    def keep(self, view: TopicsView, request: Hashable, response: MetadataResponse, body: bytes) -> None:
        """Keep a large answer without errors: one with errors may differ the next time."""
        if view is not self._view:
            self._forget_all(view)
        partitions_count = sum(len(topic.partitions) for topic in response.topics)
        if partitions_count < PARTITIONS_COUNT_MIN or len(body) > ANSWER_BYTES_MAX or _has_errors(response):
            return
        self._size_bytes += len(body) - len(self._bodies.pop(request, b""))
        self._bodies[request] = body
        while len(self._bodies) > ANSWERS_COUNT_MAX or self._size_bytes > ANSWER_BYTES_MAX:
            _, dropped = self._bodies.popitem(last=False)
            self._size_bytes -= len(dropped)

    def _forget_all(self, view: TopicsView) -> None:
        self._view = view
        self._bodies.clear()
        self._size_bytes = 0


def _has_errors(response: MetadataResponse) -> bool:
    return any(
        topic.error_code != ErrorCode.NONE or any(each.error_code != ErrorCode.NONE for each in topic.partitions)
        for topic in response.topics
    )
