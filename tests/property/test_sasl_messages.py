"""Messages of SASL logins: what is written is read again, and hostile bytes raise WireError and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_messages import BearerMessage, PlainMessage
from ottla.security.scram import (
    ITERATIONS_MIN,
    ClientFinal,
    ClientFirst,
    ScramClient,
    ServerFinal,
    ServerFirst,
    auth_message,
    scram_hash,
)
from ottla.security.secret import Secret

PARSERS: list[Callable[[bytes], object]] = [
    BearerMessage.parse,
    PlainMessage.parse,
    ClientFirst.parse,
    ClientFinal.parse,
    ServerFirst.parse,
    ServerFinal.parse,
]
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
NONCES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=","), min_size=1, max_size=40)
# Pieces of true messages, so that random ones come close to them.
PIECES = st.lists(
    st.sampled_from([b"n,,", b"n=", b"r=", b"s=", b"i=", b"c=biws", b"p=", b"v=", b"e=", b",", b"YQ==", b"4096", b"m="])
    | st.sampled_from([b"\x01", b"auth=Bearer ", b"\0", b"=2C", b"=3D", b"user"])
    | st.binary(max_size=3),
    max_size=14,
).map(b"".join)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__self__.__name__)
@given(data=st.binary(max_size=60) | PIECES)
def test_hostile_bytes_raise_a_wire_error_and_nothing_else(parse: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(WireError):
        parse(data)


@given(challenge=PIECES)
def test_a_hostile_challenge_raises_a_wire_error_and_nothing_else(challenge: bytes) -> None:
    client = ScramClient(SaslMechanism.SCRAM_SHA_256, "user", Secret("pencil"), "r")
    with contextlib.suppress(WireError):
        client.final(challenge)


@given(username=NAMES, identity=st.just("") | NAMES, nonce=NONCES)
def test_a_first_message_is_read_as_written(username: str, identity: str, nonce: str) -> None:
    first = ClientFirst(username, nonce, identity)
    assert ClientFirst.parse(first.to_bytes()) == first


@given(nonce=NONCES, salt=st.binary(min_size=1, max_size=40), iterations=st.integers(1, 999_999_999))
def test_a_challenge_is_read_as_written(nonce: str, salt: bytes, iterations: int) -> None:
    challenge = ServerFirst(nonce, salt, iterations)
    assert ServerFirst.parse(challenge.to_bytes()) == challenge


@given(nonce=NONCES, proof=st.binary(max_size=64))
def test_a_last_message_is_read_as_written(nonce: str, proof: bytes) -> None:
    final = ClientFinal(nonce, proof)
    assert ClientFinal.parse(final.to_bytes()) == final


@given(username=NAMES, password=NAMES)
def test_a_plain_message_is_read_as_written(username: str, password: str) -> None:
    message = PlainMessage("", username, Secret(password))
    assert PlainMessage.parse(message.to_bytes()) == message


@given(password=NAMES, other=NAMES, salt=st.binary(min_size=1, max_size=20))
def test_only_the_password_proves_itself(password: str, other: str, salt: bytes) -> None:
    scram = scram_hash(SaslMechanism.SCRAM_SHA_256)
    stored_key = scram.stored_key(scram.client_key(scram.salted_password(Secret(password), salt, ITERATIONS_MIN)))
    challenge = ServerFirst("ab", salt, ITERATIONS_MIN)
    client = ScramClient(SaslMechanism.SCRAM_SHA_256, "user", Secret(other), "a")
    final = ClientFinal.parse(client.final(challenge.to_bytes()))
    message = auth_message(ClientFirst.parse(client.first()), challenge, final)
    assert scram.proves(final.proof, stored_key, message) is (password == other)
