"""Protocols, mechanisms, secrets, and the messages of PLAIN and OAUTHBEARER."""

from __future__ import annotations

import pickle
import traceback

import pytest

from ottla.model.errors import ConfigError, WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.protocol import SecurityProtocol
from ottla.security.sasl_messages import BearerMessage, PlainMessage, extensions_problem
from ottla.security.secret import Secret


def test_protocols_name_what_they_use() -> None:
    assert [each for each in SecurityProtocol if each.uses_tls] == ["SSL", "SASL_SSL"]
    assert [each for each in SecurityProtocol if each.uses_sasl] == ["SASL_PLAINTEXT", "SASL_SSL"]
    assert SecurityProtocol.parse(" sasl_ssl") is SecurityProtocol.SASL_SSL


def test_an_unknown_protocol_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="TLS") as refused:
        SecurityProtocol.parse("TLS")
    assert "SASL_SSL" in str(refused.value.hint)


def test_only_scram_keeps_the_secret_from_the_peer() -> None:
    assert [each for each in SaslMechanism if not each.sends_password] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    with pytest.raises(ConfigError, match="GSSAPI"):
        SaslMechanism.parse("GSSAPI")


def test_a_secret_has_no_text_but_the_revealed_one() -> None:
    secret = Secret("hunter2")
    for text in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", repr([secret]), "%s" % secret):  # noqa: UP031
        assert "hunter2" not in text
    assert secret.reveal() == "hunter2"
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert secret != Secret("hunter3")
    assert secret != "hunter2"
    assert not Secret("")


def test_plain_messages_are_read_as_written() -> None:
    message = PlainMessage("", "alice", Secret("geheim, =ü"))
    assert message.to_bytes() == "\0alice\0geheim, =ü".encode()
    assert PlainMessage.parse(message.to_bytes()) == message


@pytest.mark.parametrize("data", [b"", b"a\0hunter2", b"\0\0hunter2", b"\0a\0", b"\0a\0hunter2\0", b"\0a\0hunter2\xff"])
def test_a_malformed_plain_message_is_refused_without_a_quote(data: bytes) -> None:
    with pytest.raises(WireError) as refused:
        PlainMessage.parse(data)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value, limit=0))


def test_bearer_messages_are_read_as_written() -> None:
    message = BearerMessage(Secret("a.b-c_d~+/=="), "me,you", {"traceId": "7 x"})
    assert message.to_bytes() == b"n,a=me=2Cyou,\x01auth=Bearer a.b-c_d~+/==\x01traceId=7 x\x01\x01"
    assert BearerMessage.parse(message.to_bytes()) == message
    assert BearerMessage(Secret("t")).to_bytes() == b"n,,\x01auth=Bearer t\x01\x01"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01x1=b\x01\x01",
        b"n,,\x01auth=Bearer a\x01x=\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,b=x,\x01auth=Bearer a\x01\x01",
        b"n,,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_bearer_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        BearerMessage.parse(data)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "\x01"}])
def test_extensions_that_would_break_the_message_are_named(extensions: dict[str, str]) -> None:
    assert extensions_problem(extensions) is not None
