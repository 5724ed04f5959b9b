from __future__ import annotations

import json
from itertools import permutations

import pytest

from ottla.client.fetching.messages import Message
from ottla.testing.record import ANY, Record, Undecodable, deserialized, encoded, record_of
from ottla.testing.topic import Pairing, difference, is_interleaving


def messages(*texts: str, partition: int = 0) -> list[Message]:
    """`k=v` or `v`."""
    found: list[Message] = []
    for offset, text in enumerate(texts):
        key, equals, value = text.rpartition("=")
        found.append(Message("orders", partition, offset, 1_000, key.encode() if equals else None, value.encode()))
    return found


def records(*values: object) -> list[Record]:
    return [encoded(record_of(value), key=True, value=True) for value in values]


def test_same_records_in_the_same_order_agree() -> None:
    assert difference(records("a", ("k", b"b"), Record(key="k")), messages("a", "k=b", "k=c")) is None
    assert difference([], []) is None


def test_records_that_are_missing_and_records_that_are_unexpected_are_named() -> None:
    told = difference(records("a", "b"), messages("a", "c", "d"))
    assert told is not None
    assert told.splitlines() == [
        "3 records, 2 expected",
        "missing:",
        "  Record(value=b'b')",
        "unexpected:",
        "  Message(orders-0@1, timestamp_ms=1000, key=None, value=b'c')",
        "  Message(orders-0@2, timestamp_ms=1000, key=None, value=b'd')",
    ]


def test_record_that_came_twice_is_unexpected_once() -> None:
    told = difference(records("a", "b"), messages("a", "a", "b"))
    assert told is not None
    assert "missing" not in told
    assert told.count("orders-0@") == 1


def test_another_order_within_a_partition_is_a_difference_unless_any_order_will_do() -> None:
    told = difference(records("a", "b"), messages("b", "a"))
    assert told is not None
    assert told.startswith("the records are there, in another order")
    assert difference(records("a", "b"), messages("b", "a"), in_any_order=True) is None


@pytest.mark.parametrize("order", list(permutations("abcd")))
def test_between_partitions_there_is_no_order(order: tuple[str, ...]) -> None:
    """`a` comes before `b`, and `c` before `d`."""
    found = messages("a", "b", partition=1) + messages("c", "d", partition=0)
    agrees = order.index("a") < order.index("b") and order.index("c") < order.index("d")
    assert (difference(records(*order), found) is None) is agrees


def test_equal_records_are_found_in_the_partition_that_leaves_an_order() -> None:
    """The first `a` must be that of the second partition, although the other comes first."""
    one, two = messages("a", "c", partition=0), messages("a", "b", partition=1)
    for partitions in ([one, two], [two, one]):
        assert is_interleaving(records("a", "b", "a", "c"), partitions)
        assert not is_interleaving(records("b", "a", "a", "c"), partitions)


def test_many_equal_records_are_compared() -> None:
    found = [message for partition in range(8) for message in messages(*["a"] * 500, partition=partition)]
    assert difference(records(*["a"] * 4_000), found) is None


def test_order_that_takes_too_long_to_find_out_is_said_to_be_so() -> None:
    found = [message for partition in range(8) for message in messages(*["a"] * 20, "b", "c", partition=partition)]
    expected = [*["a"] * 160, "c", *["b"] * 8, *["c"] * 7]
    told = difference(records(*expected), found)
    assert told is not None
    assert "in_any_order=True" in told


def test_record_that_says_less_leaves_the_others_what_they_need() -> None:
    expected = records(ANY, Record("a"), Record(key="k"))
    missing, unexpected = Pairing(expected, messages("a", "k=b", "c")).unpaired()
    assert (missing, unexpected) == ([], [])


def test_every_field_counts_when_it_is_given() -> None:
    [message] = messages("k=a")
    message = message._replace(headers=(("trace", b"1"),))
    for same in (
        Record("a", "k", {"trace": "1"}, 0, 1_000),
        Record("a", "k", [("trace", b"1")]),
        Record(timestamp_ms=pytest.approx(1_005, abs=10)),
    ):
        assert difference(records(same), [message]) is None
    for other in (
        Record("b"),
        Record(key=None),
        Record(headers={}),
        Record(partition=1),
        Record(timestamp_ms=1_001),
    ):
        assert difference(records(other), [message]) is not None


def test_null_is_not_an_empty_value() -> None:
    [message] = messages("k=")
    assert difference(records(("k", b"")), [message]) is None
    assert difference(records(("k", None)), [message]) is not None
    assert difference(records(("k", None)), [message._replace(value=None)]) is None


def test_deserialized_values_are_compared_as_they_are() -> None:
    found = [Message("orders", 0, 0, 1_000, None, deserialized(json.loads, b'{"order": 7}'))]
    assert difference([record_of({"order": 7})], found) is None
    assert difference([record_of({"order": 8})], found) is not None


def test_value_that_cannot_be_deserialized_equals_nothing_and_is_shown() -> None:
    value = deserialized(json.loads, b"{")
    assert isinstance(value, Undecodable)
    told = difference([record_of(ANY)], [Message("orders", 0, 0, 1_000, None, value)])
    assert told is not None
    assert "b'{' (JSONDecodeError:" in told


def test_long_differences_are_cut() -> None:
    told = difference([], messages(*map(str, range(100))))
    assert told is not None
    assert told.splitlines()[-1] == "  ... and 80 more"


def test_record_of_three_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="a Record"):
        record_of(("k", "v", "w"))
