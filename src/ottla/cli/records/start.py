"""Where `ottla consume` starts in each partition: `--offset`, as a user writes it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import click

from ottla.cli.client_flags import duration_ms, moment_ms
from ottla.model.limits import INT64_MAX

_AGO: Final = "@-"
_MS: Final = re.compile(r"@\d{1,19}", re.ASCII)
_BACK: Final = re.compile(r"-\d{1,18}", re.ASCII)
# ListOffsets' numbers of the ends of a log (`ottla.client.fetching.offsets`, which help does not import).
_LATEST: Final = -1
_EARLIEST: Final = -2


class Start(NamedTuple):
    """`offset` in each partition; without one where ListOffsets answers `question`, and `back` offsets before that."""

    offset: int | None
    question: int = _LATEST
    back: int = 0

    @property
    def is_latest(self) -> bool:
        """At the end: not at a record that is in the log now."""
        return self.offset is None and self.question == _LATEST and not self.back

    @property
    def is_time(self) -> bool:
        return self.offset is None and self.question >= 0


EARLIEST: Final = Start(None, _EARLIEST)


def start_of(text: str, now_ms: int) -> Start:
    """`earliest`, `latest`, `7`, `-10` (before the end), `@2026-03-01T12:00:00`, `@1767225600000`, `@-90m` (ago).

    Raises UsageError.
    """
    named = {"earliest": EARLIEST, "latest": Start(None)}.get(text.lower())
    if named is not None:
        return named
    if text.isascii() and text.isdigit() and int(text) <= INT64_MAX:
        return Start(int(text))
    if _BACK.fullmatch(text):
        return Start(None, _LATEST, -int(text))
    if _MS.fullmatch(text) and int(text[1:]) <= INT64_MAX:
        return Start(None, int(text[1:]))
    if text.startswith(_AGO):
        return Start(None, max(0, now_ms - duration_ms(text.removeprefix(_AGO), "--offset @-")))
    if text.startswith("@"):
        return Start(None, max(0, moment_ms(text[1:], "--offset @")))
    raise click.UsageError(
        f"--offset is earliest, latest, a number from 0 on, -N for the last N, or @TIME, not {text!r}."
    )
