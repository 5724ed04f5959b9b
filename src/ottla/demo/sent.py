"""The day's events once more, from their seed: what was sent, without a look at what was stored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.demo.events import events_of
from ottla.demo.expected import View
from ottla.demo.services import PAGE_VIEWS


class Malformed(NamedTuple):
    topic: str
    value: bytes


@dataclass(slots=True)
class Sent:
    """The well-formed page views, and every malformed event."""

    views: list[View] = field(default_factory=list)
    malformed: Counter[Malformed] = field(default_factory=Counter)

    def add(self, topic: str, value: bytes) -> None:
        try:
            facts = json.loads(value)
        except ValueError:
            self.malformed[Malformed(topic, value)] += 1
            return
        if topic == PAGE_VIEWS:
            self.views.append(View(facts["at_ms"], facts["member"], facts["page"]))


def sent_of(events_counts: Mapping[str, int], seed: int, day_start_ms: int) -> Sent:
    """`events_counts` by service."""
    sent = Sent()
    for service, count in events_counts.items():
        for event in events_of(service, count, seed, day_start_ms):
            sent.add(event.topic, event.value)
    return sent
