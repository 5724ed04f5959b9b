"""Callers who know other clients learn what their settings are called here."""

from __future__ import annotations

from typing import Any

import pytest

import ottla
from ottla.client.producing.serializing import to_headers
from ottla.errors import ConfigError, MessageRefused

Opened = Any


@pytest.mark.parametrize("name", ["Consumer", "ConsumerConnector", "Producer", "Admin"])
def test_a_dict_of_settings_is_refused_with_the_names_here(name: str) -> None:
    opened: Opened = getattr(ottla, name)
    arguments = {"group": "g"} if name == "ConsumerConnector" else {}
    with pytest.raises(TypeError, match=r"bootstrap.servers: the first argument, bootstrap; sasl.password: security="):
        opened({"bootstrap.servers": "localhost:9092", "sasl.password": "x"}, **arguments)


@pytest.mark.parametrize(
    ("opened", "name", "here"),
    [
        (ottla.Consumer, "group_id", "group"),
        (ottla.Consumer, "bootstrap_servers", "the first argument, bootstrap"),
        (ottla.Consumer, "max_poll_records", r"the max_messages of poll_many\(\)"),
        (ottla.Consumer, "sasl_mechanism", "security="),
        (ottla.Producer, "batch_size", "batch_bytes"),
        (ottla.Producer, "compression_type", "compression"),
        (ottla.Producer, "retries", "delivery_timeout_ms"),
    ],
)
def test_an_argument_of_another_client_is_refused_with_its_name_here(opened: Opened, name: str, here: str) -> None:
    with pytest.raises(TypeError, match=rf"{opened.__name__}\(\) has no argument '{name}': here it is {here}"):
        opened("localhost:9092", **{name: 1})


def test_an_argument_that_no_client_has_is_refused_with_the_names_that_there_are() -> None:
    consumer: Opened = ottla.Consumer
    with pytest.raises(TypeError, match=r"has no argument 'topic': its settings are .*auto_offset_reset"):
        consumer("localhost:9092", topic="t")


def test_a_missing_group_of_a_connector_is_named_with_the_class_that_was_called() -> None:
    connector: Opened = ottla.ConsumerConnector
    with pytest.raises(TypeError, match=r"ConsumerConnector.__init__\(\) missing .* 'group'"):
        connector("localhost:9092")


def test_the_text_of_a_header_is_refused_with_what_to_write() -> None:
    headers: Any = [("trace", "7f3a")]
    with pytest.raises(MessageRefused, match="is bytes or None, not str") as refused:
        to_headers(headers)
    assert refused.value.hint == """encode it: ('trace', "...".encode())"""


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda consumer: consumer.poll(0), "nothing is read"),
        (lambda consumer: consumer.subscribe(["t"]), "the consumer has none"),
        (lambda consumer: consumer.commit(), "the consumer has none"),
        (lambda consumer: consumer.assign(["t"]), "'t' is not a partition"),
        (lambda consumer: consumer.assign([("t", -1)]), "-1 is not a partition's number"),
        (lambda consumer: consumer.assign([]), "no partition is given"),
        (lambda consumer: consumer.assign({("t", 0): "first"}), "'first' is not a place"),
    ],
)
def test_a_consumer_without_a_group_says_what_it_cannot_do(call: Any, problem: str) -> None:
    with ottla.Consumer("localhost:1") as consumer, pytest.raises(ConfigError, match=problem):
        call(consumer)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topics": ["^clicks-.*"]}, "is not a topic's name"),
        ({"topics": ["t"], "pattern": "t"}, "topics or a pattern"),
        ({}, "topics or a pattern"),
        ({"topics": []}, "at least one topic"),
        ({"topics": ["t"], "exclude": "u"}, "exclude is of a pattern"),
        ({"pattern": "("}, "is not a pattern"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with ottla.Consumer("localhost:1", group="g") as consumer, pytest.raises(ConfigError, match=problem):
        consumer.subscribe(**arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"group": ""}, "'' is not a group"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms is 0"),
        ({"group_protocol": "eager"}, "'eager'"),
        ({"session_timeout_ms": 3_000, "heartbeat_interval_ms": 3_000}, "heartbeat_interval_ms"),
        ({"isolation_level": "serializable"}, "isolation_level"),
        ({"group_instance_id": ""}, "group_instance_id"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(arguments: dict[str, Any], problem: str) -> None:
    consumer: Opened = ottla.Consumer
    with pytest.raises(ConfigError, match=problem):
        consumer("localhost:9092", **({"group": "g"} | arguments))
