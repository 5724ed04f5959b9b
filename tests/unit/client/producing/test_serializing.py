from __future__ import annotations

from collections import deque
from typing import NamedTuple

import pytest

from ottla.client.producing.errors import MessageRefused, MessageTooLarge
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.producing.serializing import HeadersLike, MessageSerializer, SerializedMessages, is_set
from ottla.client.producing.settings import ProducerSettings
from ottla.client.wire.errors import UnknownTopic
from ottla.model.errors import ConfigError


def serializer(
    key_serializer: object = None, value_serializer: object = None, partitioner: object = None
) -> MessageSerializer:
    settings = ProducerSettings(
        key_serializer=key_serializer,  # type: ignore[arg-type]
        value_serializer=value_serializer,  # type: ignore[arg-type]
        partitioner=partitioner,  # type: ignore[arg-type]
        max_request_bytes=1000,
    )
    return MessageSerializer(settings, lambda: 77, lambda few: few[-1])


def one(
    value: object, *, key: object = None, headers: HeadersLike | None = None, rules: MessageSerializer | None = None
) -> SerializedMessages:
    return (rules or serializer()).message("t", value, key, None, headers, None)


def test_bytes_are_sent_as_they_are_and_now() -> None:
    found = one(b"v", key=b"k", headers={"h": b"1", "n": None})
    assert found.values == [b"v"]
    assert found.keys == [b"k"]
    assert found.headers == (("h", b"1"), ("n", None))
    assert found.timestamp_ms == 77


def test_what_can_change_later_is_copied() -> None:
    value = bytearray(b"before")
    found = one(value, key=memoryview(b"key"))
    value[:] = b"after!"
    assert found.values == [b"before"]
    assert found.keys == [b"key"]


def test_text_without_a_serializer_is_refused_with_what_to_do() -> None:
    with pytest.raises(MessageRefused, match="it is str") as refused:
        one("text")
    assert refused.value.hint == "value_serializer=str.encode sends text as UTF-8"
    with pytest.raises(MessageRefused, match="a key is bytes or None, it is int"):
        one(b"v", key=7)


def test_serializer_makes_bytes_and_leaves_none_alone() -> None:
    rules = serializer(key_serializer=str.encode, value_serializer=lambda value: repr(value).encode())
    assert one({"a": 1}, key="k", rules=rules).values == [b"{'a': 1}"]
    assert one(None, key="k", rules=rules).values == [None]


def test_error_of_a_serializer_names_the_value_and_is_the_cause() -> None:
    with pytest.raises(MessageRefused, match="the value 7 cannot be serialized") as refused:
        one(7, rules=serializer(value_serializer=lambda value: value.encode()))
    assert isinstance(refused.value.__cause__, AttributeError)
    with pytest.raises(MessageRefused, match="the serializer gave int"):
        one(7, rules=serializer(value_serializer=lambda value: value))


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ([("name",)], "a header is a pair"),
        (["no"], "a header is a pair"),
        ([(b"name", b"v")], "the name of a header is a str, not bytes"),
        ([("name", "text")], "the content of header 'name' is bytes or None, not str"),
        ([("\ud800", b"v")], "no Unicode text"),
    ],
)
def test_header_that_cannot_be_sent_is_refused(headers: HeadersLike, problem: str) -> None:
    with pytest.raises(MessageRefused, match=problem):
        one(b"v", headers=headers)


@pytest.mark.parametrize("timestamp_ms", [-1, 1.5, True, 1 << 63, "now"])
def test_time_that_is_none_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(MessageRefused, match="is no time"):
        serializer().message("t", b"v", None, None, None, timestamp_ms)


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250, 7])
def test_topic_that_cannot_exist_is_refused(topic: str) -> None:
    with pytest.raises(UnknownTopic):
        serializer().message(topic, b"v", None, None, None, None)


@pytest.mark.parametrize("partition", [-1, True, "0", 1 << 31])
def test_partition_that_is_no_number_is_refused(partition: int) -> None:
    with pytest.raises(MessageRefused, match="no number of a partition"):
        serializer().message("t", b"v", None, partition, None, None)


def test_message_that_fits_into_no_request_is_refused_with_its_place_in_the_set() -> None:
    with pytest.raises(MessageTooLarge, match="message 2 of the set may take"):
        serializer().messages("t", [b"v", None, bytes(900)], None, [b"k", None, bytes(100)], None, None, None)
    with pytest.raises(MessageTooLarge, match="the message may take"):
        one(bytes(1000))
    assert one(bytes(880)).total_bytes <= 1000


def test_set_has_one_key_or_one_for_each() -> None:
    rules = serializer()
    assert rules.messages("t", [b"a", b"b"], b"k", None, None, None, None).keys == [b"k", b"k"]
    assert rules.messages("t", [b"a", b"b"], None, [b"1", None], None, None, None).keys == [b"1", None]
    with pytest.raises(MessageRefused, match="not both"):
        rules.messages("t", [b"a"], b"k", [b"k"], None, None, None)
    with pytest.raises(MessageRefused, match="2 messages have 1 keys"):
        rules.messages("t", [b"a", b"b"], None, [b"k"], None, None, None)


def test_set_is_divided_by_its_keys_in_its_order() -> None:
    rules = serializer()
    keys = [b"a", b"b", None, b"a", b"c"]
    values = [b"%d" % number for number in range(5)]
    runs = rules.runs(rules.messages("t", values, None, keys, None, None, None), 3)
    by_position = {position: run.partition for run in runs for position in run.positions}
    numbers = [2 if key is None else partition_of_key(key, 3) for key in keys]
    assert [by_position[position] for position in range(5)] == numbers, "those without a key stay together"
    for run in runs:
        assert list(run.positions) == sorted(run.positions)
        assert run.values == [values[position] for position in run.positions]
        assert run.ends_bytes()[-1] == run.total_bytes


def test_set_of_one_key_is_not_divided() -> None:
    rules = serializer()
    (run,) = rules.runs(rules.messages("t", [b"a"] * 3, b"k", None, None, None, None), 5)
    assert run.partition == partition_of_key(b"k", 5)


def test_partitioner_gets_the_serialized_key() -> None:
    rules = serializer(key_serializer=str.encode, partitioner=lambda key, count: key[0] % count)
    messages = rules.messages("t", [b"a", b"b"], None, ["a", "b"], None, None, None)
    assert sorted((run.partition, list(run.values)) for run in rules.runs(messages, 2)) == [(0, [b"b"]), (1, [b"a"])]


@pytest.mark.parametrize("found", [-1, 3, None, 1.0, True])
def test_partitioner_that_gives_no_partition_is_refused(found: object) -> None:
    with pytest.raises(MessageRefused, match="the partitioner gave"):
        serializer(partitioner=lambda key, count: found).partition(b"k", 3)


def test_error_of_a_partitioner_is_the_cause() -> None:
    with pytest.raises(MessageRefused, match="the partitioner failed") as refused:
        serializer(partitioner=lambda key, count: key[10]).partition(b"k", 3)
    assert isinstance(refused.value.__cause__, IndexError)


def test_setting_that_is_no_callable_is_refused() -> None:
    with pytest.raises(ConfigError, match="value_serializer is a callable, not str"):
        serializer(value_serializer="json")


class Named(NamedTuple):
    a: int


@pytest.mark.parametrize("messages", [[], (), iter([]), deque(), set(), {}.values(), map(bytes, [])])
def test_collection_is_a_set_of_messages(messages: object) -> None:
    assert is_set(messages)


@pytest.mark.parametrize("message", [b"", "", None, {}, bytearray(), Named(1), 7])
def test_value_is_one_message(message: object) -> None:
    assert not is_set(message)
