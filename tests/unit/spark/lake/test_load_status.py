"""What a load says and ends with when it was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner

import ottla.spark
from ottla.cli.exit_status import INTERRUPTED
from ottla.cli.pipeline.load import command
from ottla.spark import lake
from ottla.spark.lake import LakeLoad

LOADED = LakeLoad(10, 2, {}, 7, left_count=1500)


def load(monkeypatch: pytest.MonkeyPatch, outcome: LakeLoad, arguments: Sequence[str] = ()) -> tuple[object, str]:
    """The status and the output of a load with this outcome."""

    class Loaded:
        def __init__(self, *_arguments: object, **_settings: object) -> None:
            """Reads nothing."""

        def load(self, *_arguments: object) -> LakeLoad:
            return outcome

        def follow(self, *_arguments: object, **_settings: object) -> LakeLoad:
            return outcome

    def session(*_arguments: object, **_settings: object) -> Any:
        return None

    monkeypatch.setattr(ottla.spark, "session", session)
    monkeypatch.setattr(lake, "Loader", Loaded)
    result = CliRunner().invoke(command, ["clicks", "--target", "lake", *arguments], standalone_mode=False)
    return result.return_value, result.stdout


def test_a_load_that_was_interrupted_says_what_is_left_and_ends_so(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = load(monkeypatch, LOADED)
    assert status == INTERRUPTED
    assert said == "loaded 10 rows in 2 files, table version 7; interrupted, 1,500 offsets are left\n"
    status, said = load(monkeypatch, LakeLoad(0, 0, {}, None, left_count=3))
    assert (status, said) == (INTERRUPTED, "loaded nothing; interrupted, 3 offsets are left\n")


def test_a_load_that_follows_until_it_is_stopped_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, LOADED, ["--every", "10s"])[0] == 0


def test_a_number_alone_is_seconds_as_in_earlier_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, LOADED, ["--every", "10"])[0] == 0


def test_a_load_that_follows_needs_a_duration() -> None:
    with pytest.raises(click.UsageError, match=r"--every is a duration like .* not 'often'"):
        CliRunner().invoke(
            command, ["clicks", "--target", "lake", "--every", "often"], standalone_mode=False, catch_exceptions=False
        )


def test_a_load_of_everything_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, LakeLoad(0, 0, {}, None)) == (0, "nothing to load\n")
