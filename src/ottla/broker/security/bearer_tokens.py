"""Bearer tokens of OAUTHBEARER: JSON web tokens, checked with the keys of an issuer that the operator names.

Nothing in a token chooses what is done with it: the algorithm is that of the key, the key is known by its id, and no
address in a token is contacted (`jku`, `x5u`).  Only public keys are taken, so no token can be signed with one of them
as a shared secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt

from ottla.model.errors import ConfigError, WireError
from ottla.security.sasl_server import VerifiedToken
from ottla.security.secret import Secret

KEYS_MAX: Final = 100
_BY_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_REQUIRED: Final = ("exp", "iat")
# The end of year 9999.
_EXPIRES_S_MAX: Final = 253_402_300_799


class TokenKey(NamedTuple):
    """A public key, and the only algorithm with which it is used."""

    key: Any
    algorithm: str


def parse_keys(text: str) -> Mapping[str, TokenKey]:
    """The keys of a JSON web key set, by their ids; others than signature keys are left out.  Raises `ConfigError`."""
    try:
        rows = json.loads(text)["keys"]
        if not isinstance(rows, list) or len(rows) > KEYS_MAX:
            raise ValueError(f"'keys' is not a list of at most {KEYS_MAX} keys")
        found = {row["kid"]: key for row in rows if (key := _key(row)) is not None}
    except (ValueError, KeyError, TypeError, RecursionError, jwt.PyJWTError) as error:
        raise ConfigError(f"the JSON web key set cannot be read: {error}") from None
    if not found:
        raise ConfigError(
            "the JSON web key set has no usable key", hint="it needs RSA, EC or Ed25519 public keys with a kid"
        )
    return found


def _key(row: Any) -> TokenKey | None:
    if not isinstance(row, dict):
        raise ValueError("a key is no object")
    algorithm = _algorithm(row)
    if algorithm is None or not isinstance(row.get("kid"), str) or row.get("use", "sig") != "sig":
        return None
    # Without the private part, if a careless issuer publishes it.
    public = {name: value for name, value in row.items() if name in ("kty", "n", "e", "crv", "x", "y")}
    return TokenKey(jwt.PyJWK(public, algorithm=algorithm).key, algorithm)


def _algorithm(row: Mapping[str, Any]) -> str | None:
    given, kind = row.get("alg"), row.get("kty")
    if kind == "RSA":
        return "RS256" if given is None else given if given in _OF_RSA else None
    own = _BY_CURVE.get(str(row.get("crv"))) if kind in ("EC", "OKP") else None
    return own if given in (None, own) else None


class BearerRules(NamedTuple):
    """What a token must contain."""

    issuer: str
    audiences: Sequence[str]
    subject_claim: str = "sub"
    clock_skew_s: int = 30


class BearerTokens:
    """Verifies tokens with the issuer's present keys."""

    def __init__(
        self,
        rules: BearerRules,
        keys: Callable[[], Mapping[str, TokenKey]],
        now_ms: Callable[[], int],
        on_unknown_key: Callable[[], None],
    ) -> None:
        """`on_unknown_key`: the issuer may have new keys."""
        self._rules: Final = rules
        self._keys: Final = keys
        self._now_ms: Final = now_ms
        self._on_unknown_key: Final = on_unknown_key

    def verify(self, token: Secret) -> VerifiedToken:
        """Raises `WireError` with the reason, which quotes nothing of the token but names of claims."""
        rules, text = self._rules, token.reveal()
        try:
            header = jwt.get_unverified_header(text)
            key = self._keys().get(str(header.get("kid")))
            if key is None:
                self._on_unknown_key()
                raise WireError("the token is signed with a key that the issuer does not publish")
            if "crit" in header:
                raise WireError("the token has extensions that are not understood (crit)")
            claims = jwt.decode(
                text,
                key.key,
                algorithms=[key.algorithm],
                issuer=rules.issuer,
                audience=list(rules.audiences),
                leeway=rules.clock_skew_s,
                options={"require": list(_REQUIRED)},
            )
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise WireError(f"the token is not valid: {type(error).__name__}") from None
        expires_s = claims["exp"]
        if not isinstance(expires_s, int | float) or not 0 < expires_s <= _EXPIRES_S_MAX:
            # The library accepts any number, and the text of one.
            raise WireError("the token is not valid: exp is no time")
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject or "\0" in subject:
            raise WireError(f"the token has no name in {rules.subject_claim}")
        return VerifiedToken(subject, int(expires_s * 1000) - self._now_ms())
