from __future__ import annotations

import pytest

from ottla.model.errors import ConfigError
from ottla.model.listener import Listener, parse_address, parse_flag, parse_listeners, parse_protocol_map


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:0", "localhost", 0),
        ("[::1]:9092", "::1", 9092),
        (":9092", "", 9092),
        ("broker-1.example.com:65535", "broker-1.example.com", 65535),
    ],
)
def test_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Listener("PLAINTEXT", host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9092",
        "localhost",
        "localhost:",
        "h:-1",
        "h:65536",
        "h:9999999999999",
        "h:٩",
        "::1:9092",
        "a b:1",
        "u@h:1",
        "a/b:1",
        "[::1:1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert caught.value.hint is not None


@pytest.mark.parametrize("text", ["127.0.0.1:19478", "PLAINTEXT://127.0.0.1:19478", "plaintext://127.0.0.1:19478"])
def test_flag_takes_an_address_as_kafka_writes_it_too(text: str) -> None:
    assert parse_flag(text, name="PLAINTEXT_2") == Listener("PLAINTEXT_2", "127.0.0.1", 19478)


def test_flag_with_a_security_protocol_names_the_listener_after_it() -> None:
    assert parse_flag("SASL_SSL://h:1") == Listener("SASL_SSL", "h", 1, "SASL_SSL")


@pytest.mark.parametrize("text", ["INTERNAL://h:1", "://h:1"])
def test_flag_with_another_protocol_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="and offered are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL") as caught:
        parse_flag(text)
    assert "SASL_SSL://HOST:PORT" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, is_loopback: bool) -> None:
    assert Listener("PLAINTEXT", host, 9092).is_loopback is is_loopback


def test_kafkas_list_of_listeners_is_read() -> None:
    assert parse_listeners("PLAINTEXT://:9092, controller://[::1]:9093", setting="listeners") == (
        Listener("PLAINTEXT", "", 9092),
        Listener("CONTROLLER", "::1", 9093),
    )


@pytest.mark.parametrize("text", ["", "127.0.0.1:9092", "://h:1", "A://h", "A://h:1,A://h:2", "A://h:1,,"])
def test_bad_list_of_listeners_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_listeners(text, setting="listeners")


def test_listener_is_written_as_it_is_read() -> None:
    for text in ("PLAINTEXT://[::1]:9092", "PLAINTEXT://127.0.0.1:0"):
        assert str(parse_listeners(text, setting="listeners")[0]) == text


def test_protocol_map_is_read_and_a_half_pair_refused() -> None:
    assert parse_protocol_map("A:plaintext, B:SSL") == {"A": "PLAINTEXT", "B": "SSL"}
    for text in ("A", "A:", ":B", ""):
        with pytest.raises(ConfigError):
            parse_protocol_map(text)
