"""The issuer whose tokens log in, by the settings of a listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.security.bearer_tokens import BearerRules, BearerTokens
from ottla.broker.security.key_set import KeySet
from ottla.model import security_settings as setting
from ottla.model.settings import BrokerSettings


class TokenIssuer(NamedTuple):
    """`keys` are read once they are started; until then no token is valid."""

    keys: KeySet
    tokens: BearerTokens


def open_issuer(settings: BrokerSettings, now_ms: Callable[[], int]) -> TokenIssuer:
    """Of checked settings.  Raises `ConfigError` for a URL that is not accepted."""
    url = settings[setting.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL]
    issuer = settings[setting.SASL_OAUTHBEARER_EXPECTED_ISSUER]
    assert url is not None, "the settings were checked"
    assert issuer is not None, "the settings were checked"
    rules = BearerRules(
        issuer,
        settings[setting.SASL_OAUTHBEARER_EXPECTED_AUDIENCE],
        settings[setting.SASL_OAUTHBEARER_SUB_CLAIM_NAME],
        settings[setting.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS],
    )
    keys = KeySet(url, settings[setting.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS])
    return TokenIssuer(keys, BearerTokens(rules, lambda: keys.keys, now_ms, keys.read_again))
