from __future__ import annotations

import pytest

from ottla.client.wire.address import Address, parse_bootstrap
from ottla.client.wire.errors import BadAddress


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9093", [Address("localhost", 9093)]),
        ("localhost", [Address("localhost", 9092)]),
        (" a:1 , b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9094", [Address("::1", 9094)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_parse_bootstrap_reads_hosts_and_ports(text: str, addresses: list[Address]) -> None:
    assert parse_bootstrap(text) == addresses


def test_parse_bootstrap_takes_a_sequence_too() -> None:
    assert parse_bootstrap(["a:1,b:2", "c:3"]) == [Address("a", 1), Address("b", 2), Address("c", 3)]


@pytest.mark.parametrize(
    "text", ["", ",", "a:", "a:x", "a:0", "a:65536", ":9092", "::1", "[::1", "[::1]9092", "a:-1", "a:²"]
)
def test_parse_bootstrap_refuses_what_is_no_address_with_a_hint(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_bootstrap(text)
    assert caught.value.hint


@pytest.mark.parametrize("given", [9092, None, b"a:1", ["a:1", 2]])
def test_parse_bootstrap_refuses_what_is_written_like_something_else(given: object) -> None:
    with pytest.raises(BadAddress, match="is not an address") as caught:
        parse_bootstrap(given)  # type: ignore[arg-type]
    assert "host:port" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("http://a:8080/x", "brokers speak Kafka's protocol, not http: give host:port, a:8080 if that is the broker's"),
        ("PLAINTEXT://a:9092", "as a bootstrap address it is a:9092, without the listener's name"),
        ("kafka://user:secret@a:1", "brokers speak Kafka's protocol, not kafka: give host:port, a:1 if"),
    ],
)
def test_parse_bootstrap_has_a_hint_that_fits_a_url(given: str, hint: str) -> None:
    with pytest.raises(BadAddress, match="is a URL, and a broker's address is not") as caught:
        parse_bootstrap(given)
    assert str(caught.value.hint).startswith(hint)


def test_address_is_written_as_it_is_read() -> None:
    for address in (Address("a", 1), Address("::1", 2)):
        assert parse_bootstrap(str(address)) == [address]
