"""Tokens of an identity provider on loopback, and of AWS's signer."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType

import pytest

from ottla.client.wire.errors import AuthenticationFailed, TokenUnavailable
from ottla.client.wire.security.tokens import AwsMskToken, ClientCredentials
from ottla.model.errors import ConfigError
from ottla.runtime.installation import install_command
from ottla.security.secret import Secret
from ottla.testing.fake_clock import FakeClock

SECRET = "s3cret"
LIFETIME_S = 100


class TokenEndpoint:
    """Answers with `status` and `content`; `seen` has the headers and forms of the requests."""

    def __init__(self) -> None:
        self.status = 200
        self.content: object = None
        self.location: str | None = None
        self.seen: list[tuple[Mapping[str, str], str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.seen.append((dict(self.headers), form))
                content = endpoint.content or {"access_token": f"t{len(endpoint.seen)}", "expires_in": LIFETIME_S}
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(endpoint.status)
                if endpoint.location is not None:
                    self.send_header("Location", endpoint.location)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                endpoint.seen.append((dict(self.headers), "GET"))
                self.send_response(500)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    found = TokenEndpoint()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


def source_of(endpoint: TokenEndpoint, clock: FakeClock | None = None) -> ClientCredentials:
    return ClientCredentials(endpoint.url, "me/too", Secret(SECRET), "a b", clock=clock or FakeClock())


def test_a_token_is_requested_by_the_client_credentials_grant(endpoint: TokenEndpoint) -> None:
    assert source_of(endpoint)() == "t1"
    headers, form = endpoint.seen[0]
    assert form == "grant_type=client_credentials&scope=a+b"
    assert headers["Authorization"] == "Basic bWUlMkZ0b286czNjcmV0"  # me%2Ftoo:s3cret


def test_a_token_is_kept_for_a_part_of_its_life(endpoint: TokenEndpoint) -> None:
    clock = FakeClock()
    source = source_of(endpoint, clock)
    assert [source(), source()] == ["t1", "t1"]
    clock.advance(LIFETIME_S * 790)
    assert source() == "t1"
    clock.advance(LIFETIME_S * 20)
    assert source() == "t2"


def test_a_token_is_kept_to_its_end_while_the_provider_is_in_trouble(endpoint: TokenEndpoint) -> None:
    clock = FakeClock()
    source = source_of(endpoint, clock)
    source()
    endpoint.status = 503
    clock.advance(LIFETIME_S * 990)
    assert source() == "t1"
    clock.advance(LIFETIME_S * 20)
    with pytest.raises(TokenUnavailable):
        source()


def test_a_token_without_a_lifetime_is_used_once(endpoint: TokenEndpoint) -> None:
    endpoint.content = {"access_token": "t"}
    source = source_of(endpoint)
    source()
    source()
    assert len(endpoint.seen) == 2


def test_another_process_requests_its_own_token(endpoint: TokenEndpoint) -> None:
    source = source_of(endpoint)
    source()
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert copy() == "t2"
    assert SECRET not in repr(source)


def test_a_refused_client_is_not_retried(endpoint: TokenEndpoint) -> None:
    endpoint.status, endpoint.content = 401, {"error": "invalid_client", "error_description": "no\nsuch"}
    with pytest.raises(AuthenticationFailed, match=r"401: invalid_client: no\\nsuch") as refused:
        source_of(endpoint)()
    assert not refused.value.is_retriable
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_provider_in_trouble_is_tried_again(endpoint: TokenEndpoint, status: int) -> None:
    endpoint.status = status
    with pytest.raises(TokenUnavailable) as unavailable:
        source_of(endpoint)()
    assert unavailable.value.is_retriable


def test_no_redirect_carries_the_secret_elsewhere(endpoint: TokenEndpoint) -> None:
    endpoint.status, endpoint.location = 302, endpoint.url + "/elsewhere"
    with pytest.raises(TokenUnavailable, match="302"):
        source_of(endpoint)()
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("content", [b"not json", b"[]", b'{"access_token": 7}', b'{"token": "t"}'])
def test_an_answer_without_a_token_is_refused(endpoint: TokenEndpoint, content: bytes) -> None:
    endpoint.content = content
    with pytest.raises(TokenUnavailable):
        source_of(endpoint)()


def test_a_provider_that_is_away_is_tried_again(endpoint: TokenEndpoint) -> None:
    source = ClientCredentials("http://127.0.0.1:1/token", "me", Secret(SECRET))
    with pytest.raises(TokenUnavailable, match="no token from"):
        source()


class FakeSigner(ModuleType):
    """AWS's module, as its version 1.0 has it."""

    def __init__(self) -> None:
        super().__init__("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
        self.calls: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    def generate_auth_token(self, *arguments: str) -> tuple[str, int]:
        return self._sign("default", *arguments)

    def generate_auth_token_from_profile(self, *arguments: str) -> tuple[str, int]:
        return self._sign("profile", *arguments)

    def generate_auth_token_from_role_arn(self, *arguments: str) -> tuple[str, int]:
        return self._sign("role", *arguments)

    def _sign(self, *call: str) -> tuple[str, int]:
        if self.error is not None:
            raise self.error
        self.calls.append(call)
        return "signed", 900_000


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> FakeSigner:
    found = FakeSigner()
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", ModuleType("aws_msk_iam_sasl_signer"))
    monkeypatch.setitem(sys.modules, found.__name__, found)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_awss_signer_makes_tokens_of_the_chosen_credentials(signer: FakeSigner) -> None:
    assert AwsMskToken("eu-west-1")() == "signed"
    AwsMskToken("eu-west-1", profile="prod")()
    AwsMskToken("eu-west-1", role_arn="arn:aws:iam::1:role/r")()
    assert signer.calls == [
        ("default", "eu-west-1"),
        ("profile", "eu-west-1", "prod"),
        ("role", "eu-west-1", "arn:aws:iam::1:role/r", "ottla"),
    ]


def test_the_region_may_be_in_the_environment(signer: FakeSigner, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="region"):
        AwsMskToken()()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    AwsMskToken()()
    assert signer.calls == [("default", "us-east-1")]


def test_credentials_that_awss_signer_lacks_are_a_failed_login(signer: FakeSigner) -> None:
    signer.error = ValueError("no credentials")
    with pytest.raises(AuthenticationFailed, match="ValueError: no credentials"):
        AwsMskToken("eu-west-1")()


def test_a_missing_signer_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match="aws-msk-iam") as missing:
        AwsMskToken("eu-west-1")()
    assert missing.value.hint == install_command("msk")
