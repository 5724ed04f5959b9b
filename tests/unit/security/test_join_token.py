"""The token by which a broker joins: its text, and the reasons for which it lets none join."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.security.join_token import (
    NONCE_BYTES,
    PASSPHRASE_BYTES,
    JoinToken,
    SealedToken,
    TokenHead,
    TokenRefused,
    passphrase_of,
)
from ottla.security.secret import Secret

EXPIRES_MS = 1_795_815_000_000
HEAD = TokenHead("bGx6Yn9fT3CwT1dXq0mZ9g", "b2.example", EXPIRES_MS)
TOKEN = JoinToken(
    HEAD,
    2,
    {"zookeeper.connect": "zk1:2281/ottla", "sasl.inter.broker.username": "broker-b2.example"},
    {"ssl.keystore.location": "key and certificate\n", "sasl.inter.broker.password.file": "secret\n"},
    "broker-b2.example",
    "User:broker-b2.example",
)
PASSPHRASE = passphrase_of(bytes(range(PASSPHRASE_BYTES)))
NONCE = bytes(range(NONCE_BYTES))
# Version 1: brokers of later releases must open it.
GOLDEN = """\
-----BEGIN OTTLA JOIN TOKEN-----
Version: 1
Cluster: bGx6Yn9fT3CwT1dXq0mZ9g
Host: b2.example
Expires: 2026-11-27T21:30:00Z

AAECAwQFBgcICQoLhsXjpwpe+I8w7YZL2O54LTNYfCEyT8qYDEW2GWpmhD9JS2GW
Oxwt89Z4yw2GZXuI3uYs7x949pS+7tMYpU9BTDkuAs/nqcQmnaieDStGcl9X1nTb
/vTLa3rB66QMpRdaeU5jpZal6hF1IEMbrjmuOwhSOUttC6tvyDGz9T/V0li5rnQb
7bYMyo8JvW5Rkb8swGdp/e1HeZNqupVizx11OU7mLUu1raqvu3mX9N5UhPoaKKn7
BHxv5lq60/OpRwnYaoSFF0T13tRW9fFMt3m3k0zft0T70k6J7KlWb+nu9ygip4dp
+zcq+KkfldWAMlm2SG0izknkwr1mSRZyyaveN1ilxFFpmzFw8wqJmeUh0u4jeO4B
2QiwnWUDUYf0eaE0xF1s1OCf/mV8ogCGbTMo
-----END OTTLA JOIN TOKEN-----
"""


def test_token_of_version_1_is_this_text() -> None:
    assert PASSPHRASE.reveal() == "AAAQ-EAYE-AUDA-OCAJ-BIFQ-YDIO-B4IB-CEQT"
    assert TOKEN.sealed(PASSPHRASE, NONCE) == GOLDEN


def test_token_of_version_1_is_opened() -> None:
    sealed = SealedToken.parse(GOLDEN)
    assert sealed.head == HEAD
    assert sealed.opened(PASSPHRASE) == TOKEN


@pytest.mark.parametrize("changed", [str.lower, lambda text: text.replace("-", ""), lambda text: f" {text}\r\n"])
def test_passphrase_may_be_typed_in_small_letters_and_without_dashes(changed: Callable[[str], str]) -> None:
    typed = Secret(changed(PASSPHRASE.reveal()))
    assert SealedToken.parse(GOLDEN).opened(typed) == TOKEN


def test_token_may_come_from_a_terminal_with_blanks_and_other_line_ends() -> None:
    pasted = "\r\n" + "".join(f"  {line}\r\n" for line in GOLDEN.splitlines())
    assert SealedToken.parse(pasted).opened(PASSPHRASE) == TOKEN


def test_no_text_form_shows_the_content_or_the_passphrase() -> None:
    assert "secret" not in GOLDEN
    assert "secret" not in repr(TOKEN)
    assert "AAAQ" not in f"{PASSPHRASE!r} {PASSPHRASE}"


def test_another_passphrase_is_not_reported_as_damage() -> None:
    with pytest.raises(TokenRefused, match="the passphrase does not open"):
        SealedToken.parse(GOLDEN).opened(passphrase_of(bytes(PASSPHRASE_BYTES)))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (lambda text: "", "is not a token"),
        (lambda text: "ca.pem\n" + text, "is not a token"),
        (lambda text: text[:-200], "its end is missing"),
        (lambda text: text.replace("\n\n", "\n"), "its end is missing"),
        (lambda text: text.replace("Cluster: ", "Clutter: "), "its head is not"),
        (lambda text: text.replace("Host: b2.example\n", ""), "its head is not"),
        (lambda text: text.replace("-11-", "-13-"), "is not a time"),
        (lambda text: text.replace("AAEC", "AA*C"), "is not base64"),
        (lambda text: text.replace("AAEC", "AAÉC"), "characters that no token has"),
        (lambda text: text.replace("AAEC", "AAED"), "its checksum is wrong"),
        (lambda text: text.replace("b2.example", "b3.example"), "its checksum is wrong"),
    ],
)
def test_damage_is_reported_before_the_passphrase_is_needed(changed: Callable[[str], str], problem: str) -> None:
    assert changed(GOLDEN) != GOLDEN
    with pytest.raises(TokenRefused, match=problem):
        SealedToken.parse(changed(GOLDEN))


def test_a_later_version_is_named() -> None:
    with pytest.raises(TokenRefused, match="has version 2, and this Ottla knows version 1"):
        SealedToken.parse(GOLDEN.replace("Version: 1", "Version: 2"))


@pytest.mark.parametrize(
    "forged",
    [
        HEAD._replace(expires_ms=EXPIRES_MS + 86_400_000),
        HEAD._replace(host="b3.example"),
        HEAD._replace(cluster_id="another"),
    ],
)
def test_a_head_that_was_changed_with_its_checksum_opens_with_no_passphrase(forged: TokenHead) -> None:
    # What a thief of the text can compute without the passphrase.
    sealed = SealedToken(forged, SealedToken.parse(GOLDEN).body)
    with pytest.raises(TokenRefused, match="does not open"):
        sealed.opened(PASSPHRASE)


def test_token_is_refused_from_its_expiry_on() -> None:
    HEAD.require_time(EXPIRES_MS - 1)
    with pytest.raises(TokenRefused, match="expired at 2026-11-27T"):
        HEAD.require_time(EXPIRES_MS)
