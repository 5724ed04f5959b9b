"""The topics of a request, each once, however often it is named."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

from ottla.runtime.offload import Offload


class NamedTopic(Protocol):
    """A topic in a request."""

    name: str


Named = TypeVar("Named", bound=NamedTopic)


async def by_name(topics: Sequence[Named], turn: Offload) -> tuple[dict[str, Named], Collection[str]]:
    """The topics in the order of their first places, and the names that occur several times."""
    named: dict[str, Named] = {}
    named_twice: set[str] = set()
    for topic in topics:
        if named.setdefault(topic.name, topic) is not topic:
            named_twice.add(topic.name)
        await turn.pause()
    return named, named_twice
