from __future__ import annotations

from pathlib import Path

import click
import pytest

from ottla.cli.client_flags import duration_ms, moment_ms
from ottla.cli.group.group_admins import states_named
from ottla.cli.group.reset import Target, read_offsets, write_offsets
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01", 0),
        ("1970-01-01T02:00:00.005+02:00", 5),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.250", 1_700_000_000_250),
    ],
)
def test_moment_is_utc_unless_it_names_a_zone(text: str, expected: int) -> None:
    assert moment_ms(text, "--to-datetime") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H30M", 5_400_000),
        ("P2DT3S", 172_803_000),
        ("pt5m", 300_000),
        ("90m", 5_400_000),
        ("250ms", 250),
        ("3d", 259_200_000),
    ],
)
def test_duration_is_iso_or_a_number_with_its_unit(text: str, expected: int) -> None:
    assert duration_ms(text, "--by-duration") == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "m", "-5m", "1w", "P1H", "PT1H ", "yesterday", "9" * 20 + "d"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--by-duration"):
        duration_ms(text, "--by-duration")


@pytest.mark.parametrize("text", ["", "now", "12:00", "2026-13-01", "2026-01-01T25:00"])
def test_moment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="is a moment like"):
        moment_ms(text, "--to-datetime")


def test_offsets_that_were_written_are_read_again(tmp_path: Path) -> None:
    offsets = {TopicPartition("b.c", 0): 2**63 - 1, TopicPartition("a", 11): 0, TopicPartition("a", 2): 7}
    text = write_offsets(offsets)
    assert text == "a,2,7\na,11,0\nb.c,0,9223372036854775807\n"
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    assert read_offsets(path, "billing") == offsets


def test_offsets_of_several_groups_are_read_for_one(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text('"billing","orders",0,5\n\nother,orders,0,9\nbilling, orders, 1, 6\n')
    assert read_offsets(path, "billing") == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6}
    with pytest.raises(OttlaError, match="has no offsets for group missing"):
        read_offsets(path, "missing")


def test_mark_of_an_editor_takes_the_first_line_from_no_group(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("billing,orders,0,5\nbilling,orders,1,6\n", encoding="utf-8-sig")
    assert read_offsets(path, "billing") == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("orders,0\n", "line 1: 2 columns"),
        ("orders,0,5\norders,0,6\n", "line 2: orders-0 is listed twice"),
        ("orders,x,5\n", "'x' is not a number"),
        ("orders,0,-1\n", "'-1' is not a number"),
        (f"orders,0,{2**63}\n", "is not a number"),
        (f"orders,{2**31},1\n", "is not a number"),
        ("or ders,0,1\n", "has characters other than"),
        ('"orders,0,1\n', "is not CSV"),
        ("\xff", "has no offsets"),
        ("", "has no offsets"),
    ],
)
def test_offsets_that_cannot_be_read_name_the_line(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(content)
    if content == "\xff":
        path.write_bytes(b"\xff\xfe")
        told = "is not UTF-8"
    with pytest.raises(OttlaError, match=told) as error:
        read_offsets(path, "billing")
    assert error.value.hint


def test_target_is_one_of_the_ways() -> None:
    Target(to_offset=0).check()
    Target(shift_by=0).check()
    for wrong in (Target(), Target(to_earliest=True, to_latest=True), Target(to_offset=0, from_file=Path("x"))):
        with pytest.raises(click.UsageError, match="Give a target"):
            wrong.check()


def test_states_are_named_in_any_case_and_with_commas() -> None:
    assert states_named(["stable, EMPTY", "Reconciling"]) == ["Stable", "Empty", "Reconciling"]
    for wrong in ("", "Bogus", "Stable,"):
        with pytest.raises(click.UsageError, match="--state is one of"):
            states_named([wrong])
