from __future__ import annotations

from collections import Counter

import pytest

from ottla.demo.counts import Audit, Bucket, Counts, Line, from_rows, to_rows

NINE = Bucket("clicks", 363_297)
TEN = Bucket("clicks", 363_298)
VIEWS = Bucket("page-views", 363_297)


def _counts() -> Counts:
    return Counter({NINE: 5, TEN: 3, VIEWS: 9})


def test_counts_come_back_from_their_rows() -> None:
    assert to_rows(_counts()) == [("clicks", 363_297, 5), ("clicks", 363_298, 3), ("page-views", 363_297, 9)]
    assert from_rows(to_rows(_counts())) == _counts()


def test_equal_counts_have_no_difference() -> None:
    audit = Audit(_counts(), _counts(), _counts())
    assert audit.differences == []
    assert audit.hours == [363_297, 363_298]
    assert audit.topic_line("clicks") == Line(8, 8, 8)


@pytest.mark.parametrize("place", ["produced", "stored", "loaded"])
@pytest.mark.parametrize("off_by", [-1, 1])
def test_one_record_too_few_or_too_many_is_found_wherever_it_is(place: str, off_by: int) -> None:
    places = {name: _counts() for name in ("produced", "stored", "loaded")}
    places[place][TEN] += off_by
    audit = Audit(**places)
    assert [bucket for bucket, _ in audit.differences] == [TEN]
    assert getattr(audit.line(TEN), place) == 3 + off_by
    assert str(TEN) == "topic clicks, hour 2011-06-12-10"


def test_a_record_in_another_hour_is_two_differences_though_the_sums_agree() -> None:
    moved = _counts()
    moved[NINE] -= 1
    moved[TEN] += 1
    audit = Audit(_counts(), _counts(), moved)
    assert [bucket for bucket, _ in audit.differences] == [NINE, TEN]
    assert audit.topic_line("clicks").is_equal


@pytest.mark.parametrize("place", ["produced", "stored", "loaded"])
def test_an_hour_that_only_one_place_knows_is_a_difference(place: str) -> None:
    places = {name: _counts() for name in ("produced", "stored", "loaded")}
    places[place][Bucket("searches", 1)] = 1
    assert len(Audit(**places).differences) == 1
    assert 1 in Audit(**places).hours
