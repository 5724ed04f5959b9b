"""Where `ottla consume` starts, from what a user writes."""

from __future__ import annotations

import click
import pytest

from ottla.cli.records.start import EARLIEST, Start, start_of
from ottla.client.fetching import offsets

NOW_MS = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(None, offsets.EARLIEST)),
        ("Latest", Start(None, offsets.LATEST)),
        ("7", Start(7)),
        ("-10", Start(None, offsets.LATEST, 10)),
        ("@1500", Start(None, 1500)),
        ("@1970-01-01T00:00:01", Start(None, 1000)),
        ("@1970-01-01T01:00:01+01:00", Start(None, 1000)),
        ("@-90m", Start(None, NOW_MS - 90 * 60_000)),
        ("@-400d", Start(None, 0)),
    ],
)
def test_start_is_an_offset_an_end_or_a_time(text: str, expected: Start) -> None:
    assert start_of(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "x", "1.5", "+1", "--1", "@", "@x", "@-x", str(1 << 63), "²"])
def test_text_that_is_no_start_is_a_wrong_call(text: str) -> None:
    with pytest.raises(click.UsageError):
        start_of(text, NOW_MS)


def test_only_the_end_itself_is_the_latest() -> None:
    assert Start(None).is_latest
    assert not Start(None, back=1).is_latest
    assert not Start(7).is_latest
    assert not EARLIEST.is_latest
    assert Start(None, 0).is_time
    assert not EARLIEST.is_time
