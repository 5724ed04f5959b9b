"""Keys and values as their user wants them: a plain callable from bytes for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from ottla.records.record import Headers
from ottla.records.record_run import RecordRun

Deserializer: TypeAlias = Callable[[bytes], Any]


class Deserializers:
    """Applied to the columns of a run, one item when it is asked for; a null stays None."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def columns(self, run: RecordRun, offsets: Iterable[int], headers: Iterable[Headers]) -> list[Iterable[object]]:
        """The columns of a message after topic and partition; `offsets` and `headers` replace the run's own."""
        return [
            offsets,
            run.timestamps_ms,
            _applied(self._key, run.keys),
            _applied(self._value, run.values),
            headers,
        ]


def _applied(deserializer: Deserializer | None, column: Sequence[bytes | None]) -> Iterable[object]:
    if deserializer is None:
        return column
    if None not in column:
        return map(deserializer, cast("Sequence[bytes]", column))
    return (None if content is None else deserializer(content) for content in column)
