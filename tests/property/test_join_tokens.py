"""Any damage to a join token is refused, and what is not refused is the whole token."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from ottla.security.join_token import (
    NONCE_BYTES,
    PASSPHRASE_BYTES,
    JoinToken,
    SealedToken,
    TokenHead,
    TokenRefused,
    passphrase_of,
)
from tests.property.property_settings import example_settings

PASSPHRASE: Final = passphrase_of(bytes(PASSPHRASE_BYTES))
TOKEN: Final = JoinToken(
    TokenHead("bGx6Yn9fT3CwT1dXq0mZ9g", "b2.example", 1_795_815_000_000),
    2,
    {"zookeeper.connect": "zk1:2281/ottla"},
    {"ssl.keystore.location": "key"},
)
TEXT: Final = TOKEN.sealed(PASSPHRASE, bytes(NONCE_BYTES))
TEXTS = st.text(max_size=40)


def opened(text: str) -> JoinToken | None:
    """None for one that is refused; every other error fails the test."""
    try:
        return SealedToken.parse(text).opened(PASSPHRASE)
    except TokenRefused:
        return None


@example_settings(200)
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 80), TEXTS)
def test_a_changed_part_is_refused_or_means_the_same(position: int, length: int, written: str) -> None:
    damaged = TEXT[:position] + written + TEXT[position + length :]
    assert opened(damaged) in (None, TOKEN)


@example_settings(200)
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 6))
def test_a_changed_bit_is_refused_or_means_the_same(position: int, bit: int) -> None:
    flipped = chr(ord(TEXT[position]) ^ 1 << bit)
    assert opened(TEXT[:position] + flipped + TEXT[position + 1 :]) in (None, TOKEN)


@example_settings(100)
@given(st.integers(0, len(TEXT) - 2))
def test_a_token_without_its_end_is_refused(length: int) -> None:
    assert opened(TEXT[:length]) is None


@example_settings(100)
@given(
    st.dictionaries(TEXTS, TEXTS, max_size=4),
    st.dictionaries(TEXTS, TEXTS, max_size=4),
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | TEXTS,
    st.binary(min_size=PASSPHRASE_BYTES, max_size=PASSPHRASE_BYTES),
)
def test_any_content_comes_back(
    settings: dict[str, str], files: dict[str, str], node_id: int | None, user: str | None, random_bytes: bytes
) -> None:
    token = JoinToken(TOKEN.head, node_id, settings, files, user, user)
    passphrase = passphrase_of(random_bytes)
    assert SealedToken.parse(token.sealed(passphrase, bytes(NONCE_BYTES))).opened(passphrase) == token
