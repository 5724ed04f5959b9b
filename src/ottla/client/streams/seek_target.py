"""Places in a partition, as a user names them: an offset, a time, the earliest or the latest."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from ottla.client.fetching.offsets import EARLIEST, LATEST
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NO_OFFSET
from ottla.model.limits import INT64_MAX

Place: TypeAlias = int | datetime | Literal["earliest", "latest"]

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}


class Target(NamedTuple):
    """Where to read on: at `offset`, or, with a question, where ListOffsets answers."""

    offset: int
    question: int | None


def target_of(place: Place | None, timestamp_ms: int | None) -> Target:
    """Exactly one of both is given.  Raises ConfigError for what is no place."""
    if place is None:
        if timestamp_ms is None:
            raise ConfigError("where to?", hint='an offset, a datetime, "earliest" or "latest", or timestamp_ms=...')
        return Target(NO_OFFSET, timestamp_ms_of(timestamp_ms))
    if timestamp_ms is not None:
        raise ConfigError("a place and a timestamp_ms were given", hint="give one of both")
    question = question_of(place)
    return Target(place if isinstance(place, int) else NO_OFFSET, question)


def question_of(place: Place) -> int | None:
    """What ListOffsets is asked for this place; None for an offset, which needs no question."""
    if isinstance(place, datetime):
        return timestamp_ms_of(place)
    if isinstance(place, str):
        question = _NAMED.get(place)
        if question is None:
            raise ConfigError(
                f"{place!r} is not a place in a partition",
                hint='use an offset, a datetime, "earliest" or "latest"',
            )
        return question
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place <= INT64_MAX:
        raise ConfigError(f"{place!r} is not an offset", hint="offsets begin with 0")
    return None


def timestamp_ms_of(time: datetime | int) -> int:
    """Milliseconds since 1970, as messages have them.  A `datetime` has to say its time zone."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ConfigError(f"{time!r} has no time zone", hint="as in datetime.now(timezone.utc)")
        milliseconds = int(time.timestamp() * 1000)
    elif isinstance(time, bool) or not isinstance(time, int):
        raise ConfigError(f"{time!r} is not a time", hint="use milliseconds since 1970, or a datetime")
    else:
        milliseconds = time
    if not 0 <= milliseconds <= INT64_MAX:
        raise ConfigError(f"{time!r} is before 1970", hint="timestamps of messages count from 1970-01-01 UTC")
    return milliseconds
