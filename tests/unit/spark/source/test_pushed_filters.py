"""What a query's conditions leave to read: never less than what they are true for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.model.identifiers import TopicPartition
from ottla.spark.source.batch_reader import bounds_of

COMPARED: dict[type[Filter], Callable[[int, int], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
columns = st.sampled_from(["partition", "offset"])
conditions = st.one_of(
    st.builds(
        lambda kind, column, value: kind((column,), value),
        st.sampled_from(list(COMPARED)),
        columns,
        st.integers(-2, 12),
    ),
    st.builds(lambda column, values: In((column,), tuple(values)), columns, st.lists(st.integers(0, 12), max_size=3)),
    st.builds(lambda column, value: Not(EqualTo((column,), value)), columns, st.integers(0, 12)),
)


def holds(condition: Filter, record: dict[str, int]) -> bool:
    if isinstance(condition, Not):
        return not holds(condition.child, record)
    if isinstance(condition, In):
        return record[condition.attribute[0]] in condition.value
    assert isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual)
    return COMPARED[type(condition)](record[condition.attribute[0]], condition.value)


@given(st.lists(conditions, max_size=4), st.integers(0, 5), st.integers(0, 8))
def test_every_record_that_fulfils_all_conditions_is_read(filters: list[Filter], first: int, count: int) -> None:
    bounds = bounds_of(filters)
    for partition in range(13):
        start, stop = bounds.clipped(first, first + count)
        assert first <= start <= stop <= first + count
        for offset in range(first, first + count):
            if all(holds(each, {"partition": partition, "offset": offset}) for each in filters):
                assert bounds.admits(TopicPartition("t", partition))
                assert start <= offset < stop


def test_conditions_shorten_what_is_read() -> None:
    bounds = bounds_of(
        [
            EqualTo(("topic",), "t"),
            In(("partition",), (1, 2)),
            GreaterThan(("offset",), 4),
            LessThanOrEqual(("offset",), 9),
            IsNotNull(("offset",)),
        ]
    )
    places = [TopicPartition("t", 1), TopicPartition("t", 3), TopicPartition("u", 1)]
    assert [bounds.admits(place) for place in places] == [True, False, False]
    assert bounds.clipped(0, 100) == (5, 10)
    assert bounds.clipped(20, 100) == (20, 20)


def test_a_lower_bound_of_the_timestamp_is_one_of_the_offsets_and_an_upper_one_is_none() -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, 123_900, tzinfo=UTC)
    assert bounds_of([GreaterThanOrEqual(("timestamp",), moment)]).time_ms == 1_767_268_800_123
    assert bounds_of([LessThan(("timestamp",), moment)]).time_ms is None
    assert bounds_of([GreaterThan(("timestamp",), "later")]).time_ms is None
