"""Tokens that log in, and everything that must not."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ottla.broker.security.bearer_tokens import BearerRules, BearerTokens, parse_keys
from ottla.broker.security.key_set import KeySet
from ottla.model.errors import ConfigError, WireError
from ottla.security.secret import Secret

RSA_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())
ED_KEY: Final = ed25519.Ed25519PrivateKey.generate()
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
PEM: Final = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def jwk(algorithm: str, key: Any, kid: str, **more: object) -> dict[str, object]:
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, **more}


SET: Final = json.dumps(
    {
        "keys": [
            jwk("RS256", RSA_KEY, "rsa", alg="RS256", use="sig"),
            jwk("ES256", EC_KEY, "ec"),
            jwk("EdDSA", ED_KEY, "ed"),
            jwk("RS256", RSA_KEY, "encryption", use="enc"),
            {"kty": "oct", "kid": "shared", "alg": "HS256", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ"},
        ]
    }
)


def tokens(text: str = SET, unknown: list[None] | None = None, **rules: Any) -> BearerTokens:
    keys = parse_keys(text)
    return BearerTokens(
        BearerRules(ISSUER, [AUDIENCE, "other"], **rules),
        lambda: keys,
        lambda: time.time_ns() // 1_000_000,
        lambda: None if unknown is None else unknown.append(None),
    )


def token(
    key: Any = RSA_KEY,
    algorithm: str = "RS256",
    kid: str | None = "rsa",
    head: Mapping[str, Any] = {},
    **claims: object,
) -> Secret:
    now_s = int(time.time())
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + 600, **claims}
    head = {**head} if kid is None else {"kid": kid, **head}
    text = jwt.encode({name: value for name, value in body.items() if value is not None}, key, algorithm, head)
    return Secret(text)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")]
)
def test_token_of_the_issuer_logs_its_subject_in_until_it_expires(key: Any, algorithm: str, kid: str) -> None:
    verified = tokens().verify(token(key, algorithm, kid))
    assert verified.subject == "alice"
    assert 598_000 < verified.lifetime_ms <= 600_000


def test_user_may_be_in_another_claim() -> None:
    assert tokens(subject_claim="client_id").verify(token(client_id="bob")).subject == "bob"


def unsigned(algorithm: str) -> Secret:
    _, body, _ = token().reveal().split(".")
    forged = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "rsa"}).encode()).rstrip(b"=").decode()
    return Secret(f"{forged}.{body}.")


def signed_with_public_key() -> Secret:
    """HS256 with the public key as the secret, as libraries take it that follow the token's algorithm."""
    import hashlib
    import hmac

    _, body, _ = token().reveal().split(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode()).rstrip(b"=").decode()
    signature = hmac.digest(PEM, f"{head}.{body}".encode(), hashlib.sha256)
    return Secret(f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")


@pytest.mark.parametrize(
    "forged",
    [
        unsigned("none"),
        unsigned("RS256"),
        signed_with_public_key(),
        token(kid="other"),
        token(kid=None),
        token(kid="encryption"),
        token("secret-secret-secret-secret-1234", "HS256", "shared"),
        token(EC_KEY, "ES256", "rsa"),
        token(RSA_KEY, "RS512"),
        token(RSA_KEY, "PS256"),
        token(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        token(iss="https://other.example"),
        token(iss=None),
        token(aud="someone"),
        token(aud=None),
        token(exp=int(time.time()) - 31),
        token(exp=None),
        token(iat=None),
        token(exp=str(int(time.time()) + 600)),
        token(exp=10**20),
        token(exp=1e300),
        token(iat=float("inf")),
        token(iat=int(time.time()) + 600),
        token(nbf=int(time.time()) + 600),
        token(sub=None),
        token(sub=""),
        token(sub="a\0b"),
        token(head={"crit": ["x"], "x": 1}),
        Secret(""),
        Secret("a.b.c"),
        Secret("." * 1_000),
        Secret("x" * 60_000),
    ],
)
def test_every_other_token_is_refused_without_being_quoted(forged: Secret) -> None:
    with pytest.raises(WireError) as caught:
        tokens().verify(forged)
    assert "." * 3 not in str(caught.value)
    assert "alice" not in str(caught.value)


def test_key_in_the_token_itself_is_not_used() -> None:
    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    head = {"jwk": jwk("RS256", own, "rsa"), "jku": "https://attacker.example/keys"}
    with pytest.raises(WireError, match="InvalidSignatureError"):
        tokens().verify(token(own, head=head))


def test_unknown_key_lets_the_keys_be_read_again() -> None:
    unknown: list[None] = []
    with pytest.raises(WireError, match="does not publish"):
        tokens(unknown=unknown).verify(token(kid="new"))
    assert unknown == [None]


def test_each_key_of_a_set_has_one_algorithm() -> None:
    found = {kid: key.algorithm for kid, key in parse_keys(SET).items()}
    assert found == {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": 1}',
        '{"keys": []}',
        '{"keys": [1]}',
        '{"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]}',
        '{"keys": [{"kty": "RSA", "kid": "a", "n": "AQ"}]}',
        "[" * 100_000,
    ],
)
def test_set_without_usable_keys_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_keys(text)


@pytest.mark.parametrize("url", ["http://issuer.example/keys", "ftp://x/y", "/etc/keys", "data:,{}"])
def test_keys_come_from_https_or_a_file(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url") as caught:
        KeySet(url, 60_000)
    assert "https://" in (caught.value.hint or "")


def test_keys_of_a_file_are_read_beside_the_loop(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(SET)

    keys = KeySet((tmp_path / "keys.json").as_uri(), 60_000)
    assert asyncio.run(keys.read())
    assert set(keys.keys) == {"rsa", "ec", "ed"}
    (tmp_path / "keys.json").write_text("damaged")
    assert not asyncio.run(keys.read())
    assert set(keys.keys) == {"rsa", "ec", "ed"}
