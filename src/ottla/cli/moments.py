"""Moments and durations as users write them: `2026-03-01T12:00`, `PT1H30M`, `90m`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

_ISO_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?\Z", re.ASCII | re.IGNORECASE
)
_SHORT_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d)\Z", re.ASCII)
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION_MS_MAX: Final = 10**15


def moment_ms(text: str, flag: str) -> int:
    """ISO 8601 as ms since the epoch; without a zone it is UTC, as in Kafka's tools.  Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{flag} is a moment like 2026-03-01T12:00:00 (UTC) or 2026-03-01T12:00:00+02:00, not {text!r}."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def duration_ms(text: str, flag: str) -> int:
    """ISO 8601 (`P1DT2H`) or a number with its unit (`90m`).  Raises UsageError."""
    short = _SHORT_DURATION.match(text)
    iso = _ISO_DURATION.match(text)
    if short is not None:
        found = int(short[1]) * _UNIT_MS[short[2]]
    elif iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000
    else:
        raise click.UsageError(f"{flag} is a duration like PT1H30M, P2D or 90m, not {text!r}.")
    if found > _DURATION_MS_MAX:
        raise click.UsageError(f"{flag} {text} is longer than any retention.")
    return found
