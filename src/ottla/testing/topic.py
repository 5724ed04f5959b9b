"""A topic of a test."""

from __future__ import annotations

from typing import Self


class Topic(str):
    """A topic's name, which goes wherever a name goes, and knows where the topic is: for `produce`, `consume_all`,
    `assert_produced`."""

    __slots__ = ("bootstrap",)

    bootstrap: str

    def __new__(cls, name: str, bootstrap: str) -> Self:
        topic = super().__new__(cls, name)
        topic.bootstrap = bootstrap
        return topic

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # as `copy` and `pickle` call __new__
        return str(self), self.bootstrap
