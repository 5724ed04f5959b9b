"""The soak's judgement and its picture, on minutes that are made up."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from bench.soak.drift import Minute, ProcessFigures, judge, line_through, standstills
from bench.soak.picture import picture

MINUTES = 24


def minutes(
    memory_mb: float = 0.0, descriptors: float = 0.0, p99_ms: float = 0.0, warm_mb: float = 0.0
) -> list[Minute]:
    """What grows in each minute; `warm_mb` in each of the first four alone."""
    return [
        Minute(
            processes={
                "broker 1": ProcessFigures(
                    60 + memory_mb * index + warm_mb * min(index, 4), 200 + descriptors * index + index % 3
                )
            },
            p50_ms=1.0,
            p99_ms=20.0 + p99_ms * index + index % 2,
            max_ms=100.0,
            counts={"kills": index % 2, "read": 9, "transactions": 3, "topics": 1},
        )
        for index in range(MINUTES)
    ]


def test_soak_that_keeps_its_size_has_not_drifted() -> None:
    assert [each.has_drifted for each in judge(minutes())] == [False, False, False]


@pytest.mark.parametrize(
    ("grown", "drifted"),
    [
        (minutes(memory_mb=0.5), ["memory of broker 1, MB"]),
        (minutes(descriptors=2.0), ["descriptors of broker 1"]),
        (minutes(p99_ms=2.0), ["p99 of the producer, ms"]),
    ],
)
def test_what_grows_from_minute_to_minute_is_drift(grown: list[Minute], drifted: list[str]) -> None:
    assert [each.what for each in judge(grown) if each.has_drifted] == drifted


def test_growth_of_the_first_minutes_alone_is_no_drift() -> None:
    assert not any(each.has_drifted for each in judge(minutes(warm_mb=10.0)))


def test_minutes_without_an_acknowledgement_are_left_out_of_the_latency() -> None:
    silent = [
        Minute(each.processes, None, None, None) if index % 5 == 0 else each for index, each in enumerate(minutes())
    ]
    assert [each.has_drifted for each in judge(silent)] == [False, False, False]


def test_load_that_did_nothing_for_a_judged_minute_stood_still() -> None:
    assert standstills(minutes()) == []
    still = minutes()
    still[0] = Minute(still[0].processes, None, None, None)
    assert standstills(still) == [], "the warm-up is not judged"
    still[10] = Minute(still[10].processes, None, None, None, {"read": 9, "topics": 1, "transactions": 0})
    assert [line.partition(":")[0] for line in standstills(still)] == ["acknowledgements", "transactions"]


@pytest.mark.parametrize(("count", "judgements"), [(0, 0), (3, 0), (4, 3)])
def test_too_few_minutes_are_not_judged(count: int, judgements: int) -> None:
    assert len(judge(minutes()[:count])) == judgements


def test_line_through_values_starts_and_ends_on_them_where_they_are_straight() -> None:
    assert line_through([3.0, 5.0, 7.0]) == pytest.approx((3.0, 7.0))
    assert line_through([3.0]) == (3.0, 3.0)


@pytest.mark.parametrize("count", [0, 1, MINUTES])
def test_picture_of_any_count_of_minutes_is_a_document_with_a_mark_for_each_kill(count: int) -> None:
    drawn = ElementTree.fromstring(picture(minutes()[:count], "a soak of <some> minutes"))
    titles = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["kill"] * (count // 2)


@pytest.mark.parametrize(("memory_mb", "top"), [(60.0, "80"), (0.0, "1"), (81.0, "100"), (1234.5, "2,000")])
def test_axis_of_the_picture_ends_at_a_round_number_above_all_values(memory_mb: float, top: str) -> None:
    minute = Minute({"broker 1": ProcessFigures(memory_mb, 7.0)}, 1.0, 2.0, 3.0)
    first_chart = picture([minute], "").split("open descriptors")[0]
    assert f">{top}</text>" in first_chart


def test_line_of_the_picture_has_a_gap_where_nothing_was_acknowledged() -> None:
    whole, gap = minutes(), minutes()
    gap[10] = Minute(gap[10].processes, None, None, None)
    lines = [picture(each, "").count("<polyline") for each in (whole, gap)]
    assert lines == [5, 8], "memory and descriptors of a process, and three latencies, each in two parts"
