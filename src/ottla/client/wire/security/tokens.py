"""Sources of OAuth tokens: the client-credentials grant of an identity provider, and AWS's signer for MSK.

Each is called at a login, never between requests.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from ottla.client.wire.errors import AuthenticationFailed, TokenUnavailable
from ottla.client.wire.security.settings import SecretText, TlsSettings
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.observe.text import safe_line
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.installation import install_command

_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1 * MIB
# A token is replaced after this part of its life, so that one for a re-authentication, which is due after 85 % of a
# session's, is a new one.
_USED_PART: Final = 0.8
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TOO_MANY_REQUESTS: Final = 429
_REFUSED_FROM: Final = 400
_BROKEN_FROM: Final = 500
_ERROR_TEXT_MAX: Final = 200


@dataclass(slots=True)
class _Kept:
    """The newest token of one source in this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    token: str = ""
    renew_ms: float = 0
    expires_ms: float = 0


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """RFC 6749, 4.4.  The secret is sent as HTTP's basic authentication, as by Kafka's clients and librdkafka.

    `ca` signs the endpoint's certificate; None: the system's authorities.
    """

    token_endpoint_url: str
    client_id: str
    client_secret: SecretText
    scope: str = ""
    ca: SecretText | None = None
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False)
    _kept: _Kept = field(default_factory=_Kept, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.token_endpoint_url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            # Not quoted: it may hold a password.
            raise ConfigError("the token endpoint is not a URL", hint="write it as https://HOST/PATH")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("the URL of the token endpoint holds a password", hint="give the client's id and secret")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ConfigError(
                f"{self.token_endpoint_url} would get the client's secret without TLS", hint="use an https URL"
            )
        if not self.client_id:
            raise ConfigError(
                "a token endpoint needs a client's id and secret", hint="set sasl.oauthbearer.client.id and its secret"
            )

    def __reduce__(self) -> tuple[object, ...]:
        """Without the token: another process requests its own."""
        settings = (self.token_endpoint_url, self.client_id, self.client_secret, self.scope, self.ca)
        return ClientCredentials, settings

    def __call__(self) -> str:
        """A token that is valid for a while: a kept one as long as no newer one can be had.

        Raises AuthenticationFailed, TokenUnavailable.
        """
        kept = self._kept
        with kept.lock:
            now_ms = self.clock.boottime_ms()
            if now_ms < kept.renew_ms:
                return kept.token
            try:
                self._renew(kept, now_ms)
            except TokenUnavailable:
                if now_ms >= kept.expires_ms:
                    raise
            return kept.token

    def _renew(self, kept: _Kept, now_ms: int) -> None:
        answer = self._request()
        token, lifetime_s = answer.get("access_token"), answer.get("expires_in", 0)
        if not isinstance(token, str) or not token:
            raise TokenUnavailable(f"{self.token_endpoint_url} answered without an access_token")
        lifetime_ms = lifetime_s * 1000 if isinstance(lifetime_s, int | float) else 0
        kept.token = token
        kept.renew_ms, kept.expires_ms = now_ms + lifetime_ms * _USED_PART, now_ms + lifetime_ms

    def _request(self) -> Mapping[str, object]:
        # Imported late: few clients log in so, and it takes longer to import than the client.
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

        from ottla.client.wire.security.tls import tls_context

        class NoRedirect(HTTPRedirectHandler):
            """A redirected request would carry the secret to another address."""

            def redirect_request(self, *_: object) -> None:
                return None

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        # RFC 6749, 2.3.1: both are form-encoded first.
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret.reveal())}"
        request = Request(
            self.token_endpoint_url,
            urlencode(form).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        opener = build_opener(NoRedirect, HTTPSHandler(context=tls_context(TlsSettings(ca=self.ca))))
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                return self._parsed(response.read(_ANSWER_BYTES_MAX + 1))
        except HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(_ANSWER_BYTES_MAX)) from None
        except (URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            raise TokenUnavailable(f"no token from {self.token_endpoint_url}: {reason}") from None

    def _parsed(self, body: bytes) -> Mapping[str, object]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if len(body) > _ANSWER_BYTES_MAX or not isinstance(answer, dict):
            raise TokenUnavailable(f"{self.token_endpoint_url} did not answer with a JSON object")
        return answer

    def _refused(self, status: int, body: bytes) -> AuthenticationFailed | TokenUnavailable:
        if status == _TOO_MANY_REQUESTS or not _REFUSED_FROM <= status < _BROKEN_FROM:
            return TokenUnavailable(f"{self.token_endpoint_url} answered with status {status}")
        try:
            answer = json.loads(body)
            parts = [answer.get("error"), answer.get("error_description")]
            reason = ": ".join(str(part) for part in parts if part)
        except (ValueError, AttributeError):
            reason = ""
        detail = f": {safe_line(reason[:_ERROR_TEXT_MAX])}" if reason else ""
        return AuthenticationFailed(
            f"{self.token_endpoint_url} refused client {self.client_id} with status {status}{detail}",
            hint="check the client's id, secret and scope, and the URL of the token endpoint",
        )


@dataclass(frozen=True, slots=True)
class AwsMskToken:
    """AWS_MSK_IAM: AWS's signer makes a token of the process's AWS credentials, which MSK takes by OAUTHBEARER.

    `region`: that of the cluster; "": AWS_REGION or AWS_DEFAULT_REGION.  `profile` and `role_arn` choose the
    credentials; without both they are those that AWS's tools would use.
    """

    region: str = ""
    profile: str = ""
    role_arn: str = ""
    role_session_name: str = "ottla"

    def __call__(self) -> str:
        try:
            signer = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
        except ImportError:
            raise ConfigError(
                "AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python", hint=install_command("msk")
            ) from None
        region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise ConfigError("AWS_MSK_IAM needs the cluster's region", hint="set aws.region, or AWS_REGION")
        try:
            token: str
            if self.role_arn:
                token, _ = signer.generate_auth_token_from_role_arn(region, self.role_arn, self.role_session_name)
            elif self.profile:
                token, _ = signer.generate_auth_token_from_profile(region, self.profile)
            else:
                token, _ = signer.generate_auth_token(region)
        except Exception as error:  # noqa: BLE001 (the signer and botocore have no common type)
            raise AuthenticationFailed(
                f"AWS's signer made no token: {type(error).__name__}: {safe_line(str(error)[:_ERROR_TEXT_MAX])}",
                hint="check the AWS credentials of this process, for example with `aws sts get-caller-identity`",
            ) from None
        return token
