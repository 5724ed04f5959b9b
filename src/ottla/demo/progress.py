"""The state of the run, collected from the processes' messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ottla.demo.counts import Audit, Counts, from_rows
from ottla.demo.messages import (
    LakeCounted,
    Loaded,
    Loading,
    Message,
    Produced,
    Producing,
    Reading,
    Stored,
    Watched,
)


@dataclass(slots=True)
class Progress:
    """`acknowledged` and `produced` by producing process; results that have not arrived yet are None."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    produced: dict[str, Produced] = field(default_factory=dict)
    watched: Watched = field(default_factory=lambda: Watched(0, 0, 0, [], 0))
    read_count: int = 0
    loading_stage: str = "Spark starts"
    stored: Stored | None = None
    loaded: Loaded | None = None
    lake: LakeCounted | None = None

    def take(self, name: str, message: Message) -> None:
        match message:
            case Producing():
                self.acknowledged[name] = message.acknowledged_count
            case Produced():
                self.produced[name] = message
                self.acknowledged[name] = sum(count for _, _, count in message.acknowledged)
            case Watched():
                self.watched = message
            case Reading():
                self.read_count = message.events_count
            case Stored():
                self.stored = message
                self.read_count = sum(count for _, _, count in message.counts)
            case Loading():
                self.loading_stage = message.stage
            case Loaded():
                self.loaded = message
            case LakeCounted():
                self.lake = message

    @property
    def acknowledged_count(self) -> int:
        return sum(self.acknowledged.values())

    @property
    def producing_ms(self) -> int:
        """From the first process's first event to the last acknowledgement."""
        ended = self.produced.values()
        return max(each.ended_ms for each in ended) - min(each.began_ms for each in ended)

    @property
    def caught_up_ms(self) -> int:
        """The time from the last acknowledgement until the online consumer had everything; 0 when it was faster."""
        return max(0, self.watched.latest_ms - max(each.ended_ms for each in self.produced.values()))

    def audit(self) -> Audit:
        assert self.stored is not None, "the topics have not been read"
        assert self.lake is not None, "the lake has not been counted"
        produced: Counts = Counter()
        for each in self.produced.values():
            produced.update(from_rows(each.acknowledged))
        return Audit(produced, from_rows(self.stored.counts), from_rows(self.lake.counts))
