"""The name of a stream: one of the iterators among which a consumer divides what it owns."""

from __future__ import annotations

from typing import NamedTuple


class StreamId(NamedTuple):
    """Ordered by consumer, then by number; written `consumer-number`, as an owner node has it."""

    consumer_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """Raises `ValueError` for what is not the name of a stream."""
        consumer_id, dash, number = text.rpartition("-")
        if not (consumer_id and dash and number.isascii() and number.isdigit()):
            raise ValueError(f"{text!r} is not the name of a stream: it must be CONSUMER-NUMBER")
        return cls(consumer_id, int(number))
