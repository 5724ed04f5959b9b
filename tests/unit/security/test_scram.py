"""SCRAM's formulas and messages, with the examples of RFC 5802's successor for SHA-256, RFC 7677."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

import pytest

from ottla.model.errors import WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import (
    ITERATIONS_MAX,
    ClientFinal,
    ClientFirst,
    ScramClient,
    ScramRejected,
    ServerFinal,
    ServerFirst,
    ServerNotAuthentic,
    auth_message,
    scram_hash,
)
from ottla.security.secret import Secret

# RFC 7677, section 3.
NONCE: Final = "rOprNGfwEbeRWgbNEkqO"
CLIENT_FIRST: Final = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST: Final = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL: Final = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL: Final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = "pencil", mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_256) -> ScramClient:
    return ScramClient(mechanism, "user", Secret(password), NONCE)


def test_a_client_sends_the_messages_of_rfc_7677() -> None:
    login = client()
    assert login.first() == CLIENT_FIRST
    assert login.final(SERVER_FIRST) == CLIENT_FINAL
    login.verify(SERVER_FINAL)


def test_a_client_refuses_the_signature_of_a_server_without_the_credentials() -> None:
    login = client()
    login.final(SERVER_FIRST)
    with pytest.raises(ServerNotAuthentic):
        login.verify(SERVER_FINAL.replace(b"6rri", b"7rri"))


def test_a_client_reports_the_error_of_a_server() -> None:
    login = client("wrong")
    login.final(SERVER_FIRST)
    with pytest.raises(ScramRejected, match="invalid-proof"):
        login.verify(b"e=invalid-proof")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"4096", b"4095"),
        SERVER_FIRST.replace(b"4096", str(ITERATIONS_MAX + 1).encode()),
        SERVER_FIRST.replace(b"4096", b"-1"),
        SERVER_FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b"W22!"),
        SERVER_FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b""),
        SERVER_FIRST + b",m=must",
        b"m=must," + SERVER_FIRST,
        b"e=unknown-user",
        b"\xff",
        b"",
    ],
)
def test_a_client_refuses_a_challenge_that_is_weak_or_malformed(challenge: bytes) -> None:
    with pytest.raises(WireError):
        client().final(challenge)


def test_optional_extensions_of_a_challenge_are_covered_by_the_proof() -> None:
    assert ServerFirst.parse(SERVER_FIRST + b",x=1").text.encode() == SERVER_FIRST + b",x=1"
    assert client().final(SERVER_FIRST + b",x=1") != client().final(SERVER_FIRST)


@pytest.mark.parametrize("mechanism", [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512])
def test_a_server_with_the_stored_keys_accepts_the_proof_and_no_other(mechanism: SaslMechanism) -> None:
    scram = scram_hash(mechanism)
    salted = scram.salted_password(Secret("pencil"), b"salt", 4096)
    stored_key, server_key = scram.stored_key(scram.client_key(salted)), scram.server_key(salted)
    challenge = ServerFirst(NONCE + "more", b"salt", 4096)
    for password in ("pencil", "Pencil"):
        login = client(password, mechanism)
        final = ClientFinal.parse(login.final(challenge.to_bytes()))
        message = auth_message(ClientFirst.parse(login.first()), challenge, final)
        assert scram.proves(final.proof, stored_key, message) is (password == "pencil")
        assert not scram.proves(final.proof[:-1], stored_key, message)
        if password == "pencil":
            login.verify(ServerFinal(scram.server_signature(server_key, message)).to_bytes())


def test_the_stored_keys_of_the_example_are_those_of_other_implementations() -> None:
    scram = scram_hash(SaslMechanism.SCRAM_SHA_256)
    salted = scram.salted_password(Secret("pencil"), b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert scram.stored_key(scram.client_key(salted)) == b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=")
    assert scram.server_key(salted) == b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")


def test_names_with_commas_and_equal_signs_are_escaped() -> None:
    first = ClientFirst("a=b,c", NONCE, "d,e")
    assert first.to_bytes() == b"n,a=d=2Ce,n=a=3Db=2Cc,r=" + NONCE.encode()
    assert ClientFirst.parse(first.to_bytes()) == first


def test_an_escaped_escape_is_read_once() -> None:
    assert ClientFirst.parse(ClientFirst("=2C", NONCE).to_bytes()).username == "=2C"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=a=2c,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a\x7f",
        b"n,,r=abc,n=user",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=user,r=abc,m=x",
        b"n,,n=user,r=abc,",
        b"n,,n=\xff,r=abc",
        b"n,b=x,n=user,r=abc",
    ],
)
def test_a_server_refuses_a_malformed_first_message(message: bytes) -> None:
    with pytest.raises(WireError):
        ClientFirst.parse(message)


def test_a_last_message_is_parsed_with_its_extensions() -> None:
    final = ClientFinal.parse(CLIENT_FINAL.replace(b",p=", b",x=1,p="))
    assert final.extensions == ",x=1"
    assert final.channel_binding == "biws"
    assert final.to_bytes() == CLIENT_FINAL.replace(b",p=", b",x=1,p=")


@pytest.mark.parametrize("message", [b"", b"c=biws,r=abc", b"c=biws,p=YQ==", b"c=biws,r=abc,p=*", b"r=a,c=biws,p=YQ=="])
def test_a_server_refuses_a_malformed_last_message(message: bytes) -> None:
    with pytest.raises(WireError):
        ClientFinal.parse(message)


def test_no_text_of_an_exchange_shows_the_password() -> None:
    assert "pencil" not in repr(client())
