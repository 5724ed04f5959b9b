"""JSON web tokens that the issuer did not sign log in no user; any claims that it signs are a user or a refusal."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.bearer_tokens import BearerRules, BearerTokens, TokenKey
from ottla.model.errors import WireError
from ottla.security.sasl_messages import BearerMessage
from ottla.security.sasl_server import BearerExchange, Rejected, VerifiedToken
from ottla.security.secret import Secret

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
NOW_S: Final = int(time.time())
# Longer than any run of all tests, which import this module at its start: the library reads its own clock.
LIFETIME_S: Final = 7 * 86_400
KEY: Final = ec.generate_private_key(ec.SECP256R1())
ES256: Final = jwt.get_algorithm_by_name("ES256")
HEAD: Final = {"alg": "ES256", "kid": "1"}
CLAIMS: Final = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW_S, "exp": NOW_S + LIFETIME_S}
TOKENS: Final = BearerTokens(
    BearerRules(ISSUER, [AUDIENCE]),
    lambda: {"1": TokenKey(KEY.public_key(), "ES256")},
    lambda: NOW_S * 1000,
    lambda: None,
)
INT64_MAX: Final = (1 << 63) - 1

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
HEADS = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "cty"]),
    st.sampled_from(["none", "None", "ES256", "HS256", "RS256", "1", "https://attacker.example"]) | JSON,
)
CLAIM_VALUES = JSON | st.sampled_from(
    [ISSUER, [AUDIENCE, "x"], NOW_S, str(NOW_S + 60), NOW_S + 0.5, 10**30, float("inf"), float("nan"), "a\0b"]
)
OTHER_CLAIMS = st.dictionaries(st.sampled_from([*CLAIMS, "nbf", "jti"]), CLAIM_VALUES, max_size=3)


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(head: Any, claims: Any, signature: bytes | None = None) -> str:
    """Signed by the issuer, unless it has a signature."""
    text = f"{part(json.dumps(head).encode())}.{part(json.dumps(claims).encode())}"
    return f"{text}.{part(ES256.sign(text.encode(), KEY) if signature is None else signature)}"


VALID: Final = token(HEAD, CLAIMS)


def verified(text: str) -> VerifiedToken | None:
    """None: it is refused, and by no other error."""
    try:
        return TOKENS.verify(Secret(text))
    except WireError:
        return None


def test_the_token_that_is_changed_logs_in() -> None:
    assert verified(VALID) == VerifiedToken("alice", LIFETIME_S * 1000)


@given(head=HEADS, signature=st.binary(max_size=80))
def test_no_head_makes_another_signature_valid(head: dict[str, object], signature: bytes) -> None:
    assert verified(token({**HEAD, **head}, CLAIMS, signature)) is None


@given(claims=OTHER_CLAIMS)
def test_signed_claims_are_a_user_until_a_time_or_a_refusal(claims: dict[str, object]) -> None:
    found = verified(token(HEAD, {**CLAIMS, **claims}))
    if found is not None:
        assert found.subject == {**CLAIMS, **claims}["sub"]
        assert "\0" not in found.subject
        assert -30_000 <= found.lifetime_ms <= INT64_MAX


@given(
    position=st.integers(0, len(VALID) - 1),
    character=st.characters(max_codepoint=0x7F),
    removed_count=st.integers(0, 3),
)
def test_a_changed_token_is_refused(position: int, character: str, removed_count: int) -> None:
    changed = VALID[:position] + character + VALID[position + removed_count :]
    found = verified(changed)
    # The last character of a signature has bits that mean nothing.
    assert found is None or (found.subject, changed.split(".")[:2]) == ("alice", VALID.split(".")[:2])


@given(
    data=st.binary(max_size=120) | st.text(max_size=60).map(lambda text: f"n,,\x01auth=Bearer {text}\x01\x01".encode())
)
def test_a_message_without_a_valid_token_ends_in_a_refusal(data: bytes) -> None:
    exchange = BearerExchange(TOKENS.verify)
    try:
        BearerMessage.parse(data)
    except WireError:
        return
    exchange.step(data)
    assert isinstance(exchange.step(b"\x01"), Rejected)
