"""Takes log lines from a topic into the index until it is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from ottla import Message
from ottla.dead_letters import DeadLetters

from .follower import Follower, Part
from .index import Advance, IndexedLine, LogIndex, TopicId
from .log_line import log_line_of


class Indexer:
    """Records that are no log lines are set aside in the topic's dead letters, before the index passes over them."""

    def __init__(self, follower: Follower, index: LogIndex, bootstrap: str) -> None:
        self._follower = follower
        self._index = index
        self._bootstrap = bootstrap
        self._dead_letters: tuple[TopicId, DeadLetters] | None = None
        self.lines_count = 0
        self.set_aside_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._dead_letters is not None:
            self._dead_letters[1].close()

    def turn(self, wait_ms: float) -> None:
        """Read once, and index what was read in one transaction."""
        parts = self._follower.poll(wait_ms)
        if not parts:
            return
        failures: list[tuple[Message, Exception]] = []
        advances = [self._read(part, failures) for part in parts]
        if failures:
            # Stored when this returns.  Killed before the transaction, the next process sets them aside once more:
            # two letters of one origin, which a replay puts back once.
            self._letters(parts[0].position.topic).put_all(failures)
        self._follower.advanced(self._index.add(advances))
        self.lines_count += sum(len(advance.lines) for advance in advances)
        self.set_aside_count += len(failures)

    def run(self, is_done: Callable[[], bool], wait_ms: float, show: Callable[[], None]) -> None:
        while not is_done():
            self.turn(wait_ms)
            show()

    def _letters(self, topic: TopicId) -> DeadLetters:
        """They know of one topic of each name."""
        if self._dead_letters is not None and self._dead_letters[0] != topic:
            self._dead_letters[1].close()
            self._dead_letters = None
        if self._dead_letters is None:
            self._dead_letters = (topic, DeadLetters(self._bootstrap, stage="INDEX"))
        return self._dead_letters[1]

    def _read(self, part: Part, failures: list[tuple[Message, Exception]]) -> Advance:
        lines = []
        for message in part.messages:
            try:
                lines.append(IndexedLine(log_line_of(message.value), message.offset))
            except (ValueError, RecursionError) as error:
                failures.append((message, error))
        return Advance(part.position, part.next_offset, lines)
