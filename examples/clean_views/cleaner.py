"""Takes views from a stream and sends what they become, with the stream's offsets, in transactions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, islice
from typing import Final
from urllib.parse import urlsplit

import ottla
from ottla.client.streams.message_stream import MessageStream
from ottla.errors import NotAssigned, TransactionAbortable, TransactionOutcomeUnknown

# A transaction has so many views at most; fewer when no more have come within the stream's consumer_timeout_ms.
VIEWS_MAX: Final = 500
DEAD_LETTERS: Final = "{topic}.dead-letter"


def clean_view(value: bytes | None) -> bytes:
    """The view with its page in place of its URL.  Raises ValueError for what is no view."""
    if value is None:
        raise ValueError("it has no value")
    view = json.loads(value)
    if not isinstance(view, dict) or not isinstance(view.get("member"), str) or not isinstance(view.get("url"), str):
        raise ValueError("it is not an object with member and url")
    page = urlsplit(view["url"]).path.rstrip("/").lower() or "/"
    return json.dumps({"at_ms": view.get("at_ms"), "member": view["member"], "page": page}).encode()


class Cleaner:
    """`views_count` and `set_aside_count` are of committed transactions."""

    def __init__(self, stream: MessageStream, producer: ottla.Producer, topic: str) -> None:
        self.views_count = 0
        self.set_aside_count = 0
        self.aborted_count = 0
        self._stream = stream
        self._producer = producer
        self._topic = topic

    def step(self) -> bool:
        """One transaction; False when no view has come."""
        first = next(self._stream, None)
        if first is None:
            return False
        firsts: dict[tuple[str, int], int] = {}
        try:
            self._transaction(chain([first], islice(self._stream, VIEWS_MAX - 1)), firsts)
        except (TransactionAbortable, NotAssigned):
            # Aborted: partitions that are still here are read again, the other consumer does so with the others.
            self.aborted_count += 1
            for partition, offset in firsts.items():
                with suppress(NotAssigned):
                    self._stream.seek(partition, offset)
        return True

    def _transaction(self, views: Iterable[ottla.Message], firsts: dict[tuple[str, int], int]) -> None:
        views_count = set_aside_count = 0
        try:
            with self._producer.transaction():
                for view in views:
                    firsts.setdefault((view.topic, view.partition), view.offset)
                    try:
                        cleaned = clean_view(view.value)
                    except ValueError as error:
                        set_aside_count += 1
                        self._set_aside(view, error)
                    else:
                        views_count += 1
                        self._producer.send(self._topic, cleaned, key=view.key)
                self._producer.send_offsets_to_transaction(self._stream.group_offsets(view))
        except TransactionOutcomeUnknown:
            self._learn_outcome()
        self.views_count += views_count
        self.set_aside_count += set_aside_count

    def _learn_outcome(self) -> None:
        """The coordinator has not answered: the same call again is safe, until it does."""
        while True:
            try:
                self._producer.commit_transaction()
            except TransactionOutcomeUnknown:
                continue
            except TransactionAbortable:
                self._producer.abort_transaction()
                raise
            return

    def _set_aside(self, view: ottla.Message, error: ValueError) -> None:
        """With its place and the reason, in the same transaction: each once, too."""
        headers = [("error", str(error).encode()), ("place", f"{view.topic}-{view.partition}@{view.offset}".encode())]
        self._producer.send(DEAD_LETTERS.format(topic=view.topic), view.value, key=view.key, headers=headers)
