from __future__ import annotations

import pickle
import traceback

import pytest

from ottla.model.errors import OttlaError
from ottla.spark.errors import SparkOptionError
from ottla.storage.errors import DirectoryLocked


class Poetic(OttlaError):
    """One with a hint of its class."""

    hint = "read it aloud"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (OttlaError("no acks 7", hint="use 1"), ["ottla.model.errors.OttlaError: no acks 7", "hint: use 1"]),
        (
            DirectoryLocked("d is in use", hint="stop it"),
            ["ottla.storage.errors.DirectoryLocked: d is in use", "hint: stop it"],
        ),
        (Poetic("no rhyme"), [f"{__name__}.Poetic: no rhyme", "hint: read it aloud"]),
        (OttlaError("no advice"), ["ottla.model.errors.OttlaError: no advice"]),
        (OttlaError("use 1", hint="use 1"), ["ottla.model.errors.OttlaError: use 1"]),
        (SparkOptionError("no", hint="use 1"), ["ottla.spark.errors.SparkOptionError: no; use 1"]),
    ],
)
def test_traceback_ends_with_the_hint_once(error: OttlaError, lines: list[str]) -> None:
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert "".join(traceback.format_exception(each)).splitlines() == lines
