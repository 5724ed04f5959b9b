"""Programs are served; requests that a web page makes a browser send, and clients without the role, are not."""

from __future__ import annotations

import base64
from http import HTTPStatus

import pytest

from ottla.model.errors import ConfigError
from ottla.security.acl import ANONYMOUS
from ottla.security.http_access import (
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    HttpAccess,
    HttpHead,
    HttpHosts,
    HttpRefused,
    HttpRoles,
    Method,
    Password,
    Peer,
    Role,
    Token,
)

HOSTS = HttpHosts(["registry.internal", "MYHOST"], "schema.registry.allowed.hosts")
OPEN = HttpAccess(HOSTS)
ALICE, BOB = "User:alice", "User:bob"
PEER = Peer("192.0.2.7")


def head(*headers: tuple[str, str], method: str = "GET") -> HttpHead:
    given = headers if any(name == "host" for name, _ in headers) else (("host", "localhost:8081"), *headers)
    return HttpHead(method, "/subjects?deleted=true", [(name.encode(), value.encode()) for name, value in given])


def status_of(request: HttpHead, access: HttpAccess = OPEN, peer: Peer = PEER) -> HTTPStatus | None:
    try:
        access.claim(request, peer)
    except HttpRefused as refused:
        return refused.status
    return None


def basic(text: str) -> tuple[str, str]:
    return "authorization", f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8081",
        "LOCALHOST:1",
        "localhost.:8081",
        "app.localhost",
        "127.0.0.1:8081",
        "[::1]:8081",
        "10.1.2.3",
        "registry.internal:80",
        "myhost",
        "",
    ],
)
def test_names_of_the_server_and_addresses_are_served(host: str) -> None:
    assert status_of(head(("host", host))) is None


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:8081",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "[::1",
        "a b",
    ],
)
def test_name_that_may_be_rebound_is_refused_for_every_method(host: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert status_of(head(("host", host), method=method)) is HTTPStatus.FORBIDDEN


def test_any_name_is_served_where_that_was_set() -> None:
    assert status_of(head(("host", "what.ever")), HttpAccess(HttpHosts(["*"], ""))) is None


@pytest.mark.parametrize(
    "origin", ["https://attacker.example", "http://localhost:3000", "https://localhost:8081", "null"]
)
def test_page_of_another_origin_is_refused(origin: str) -> None:
    assert status_of(head(("origin", origin))) is HTTPStatus.FORBIDDEN
    assert status_of(head(("origin", origin), method="POST")) is HTTPStatus.FORBIDDEN


def test_page_of_the_server_itself_is_served() -> None:
    assert status_of(head(("origin", "http://localhost:8081"))) is None
    encrypted = PEER._replace(is_encrypted=True)
    assert status_of(head(("origin", "https://localhost:8081")), peer=encrypted) is None
    assert status_of(head(("origin", "http://localhost:8081")), peer=encrypted) is HTTPStatus.FORBIDDEN


def test_bounded_heads_only_are_taken() -> None:
    assert status_of(head(*[("x", "y")] * (HEADERS_MAX - 1))) is None
    assert status_of(head(*[("x", "y")] * HEADERS_MAX)) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    assert status_of(head(("x", "y" * HEADER_BYTES_MAX))) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


@pytest.mark.parametrize("name", ["host", "authorization", "origin", "content-length"])
def test_header_that_two_servers_could_read_differently_is_taken_once(name: str) -> None:
    assert status_of(head(("host", "localhost"), (name, "localhost"), (name, "localhost"))) is HTTPStatus.BAD_REQUEST


def test_head_is_read_from_its_bytes() -> None:
    found = HttpHead.parse(b"GET /metrics?a=b HTTP/1.1\r\nHost:  me \r\nX-One: a:b\r\n\r\n")
    assert found.header(b"x-one") == "a:b"
    assert found.header(b"x-two") is None
    assert found == ("GET", "/metrics?a=b", [(b"host", b"me"), (b"x-one", b"a:b")])


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    ],
)
def test_what_is_no_head_is_refused(data: bytes) -> None:
    with pytest.raises(HttpRefused, match="HTTP 400") as refused:
        HttpHead.parse(data)
    assert refused.value.status is HTTPStatus.BAD_REQUEST


BOTH = HttpAccess(HOSTS, Method, HttpRoles.parse("read=*;write=User:alice"))


def test_password_and_token_are_claims_that_show_no_secret() -> None:
    claim = BOTH.claim(head(basic("alice:se:cret")), PEER)
    assert isinstance(claim, Password)
    assert (claim.username, claim.secret.reveal()) == ("alice", "se:cret")
    token = BOTH.claim(head(("authorization", "bearer abc.def")), PEER)
    assert isinstance(token, Token)
    assert token.secret.reveal() == "abc.def"
    assert "se:cret" not in repr(claim)
    assert "abc" not in repr(token)


@pytest.mark.parametrize(
    "authorization",
    [
        "Digest x",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"alice").decode(),
        basic(":x")[1],
        basic("a\0:x")[1],
    ],
)
def test_other_credentials_are_refused_with_the_schemes_that_are_offered(authorization: str) -> None:
    with pytest.raises(HttpRefused) as refused:
        BOTH.claim(head(("authorization", authorization)), PEER)
    assert (refused.value.status, refused.value.code) == (HTTPStatus.UNAUTHORIZED, 40101)
    assert refused.value.challenges == ('Basic realm="ottla", charset="UTF-8"', 'Bearer realm="ottla"')


def test_scheme_that_was_not_enabled_is_refused() -> None:
    bearer = HttpAccess(HOSTS, [Method.BEARER], HttpRoles.parse("*"))
    assert status_of(head(basic("alice:secret")), bearer) is HTTPStatus.UNAUTHORIZED


def test_client_without_a_credential_is_the_one_of_its_certificate() -> None:
    assert BOTH.claim(head(), PEER) == ANONYMOUS
    assert BOTH.claim(head(), PEER._replace(principal=ALICE)) == ALICE
    assert isinstance(BOTH.claim(head(basic("bob:x")), PEER._replace(principal=ALICE)), Password)


def test_role_that_a_principal_lacks_is_forbidden() -> None:
    BOTH.authorize(ALICE, Role.WRITE)
    BOTH.authorize(ALICE, Role.READ)
    BOTH.authorize(BOB, Role.READ)
    with pytest.raises(HttpRefused, match="does not have the role write") as refused:
        BOTH.authorize(BOB, Role.WRITE)
    assert (refused.value.status, refused.value.code, refused.value.challenges) == (HTTPStatus.FORBIDDEN, 40301, ())


def test_client_that_has_not_logged_in_must_log_in() -> None:
    with pytest.raises(HttpRefused) as refused:
        BOTH.authorize(ANONYMOUS, Role.READ)
    assert refused.value.status is HTTPStatus.UNAUTHORIZED
    by_certificate = HttpAccess(HOSTS, (), HttpRoles.parse("*"))
    with pytest.raises(HttpRefused) as refused:
        by_certificate.authorize(ANONYMOUS, Role.READ)
    assert refused.value.status is HTTPStatus.FORBIDDEN


def test_server_without_logins_serves_everything_to_everyone() -> None:
    access = HttpAccess(HOSTS)
    assert access.claim(head(basic("alice:wrong")), PEER) == ANONYMOUS
    access.authorize(ANONYMOUS, Role.WRITE)


@pytest.mark.parametrize(
    ("text", "principal", "reads", "writes"),
    [
        ("*", ALICE, True, True),
        ("*", ANONYMOUS, False, False),
        ("read=*", ALICE, True, False),
        ("read=User:ANONYMOUS ; write=*", ANONYMOUS, True, False),
        ("write=User:bob", ALICE, False, False),
        ("write=User:bob", "User:Bob", False, False),
        ("write=User:bob", BOB, True, True),
        ("write=User:CN=bob,O=x", "User:CN=bob,O=x", True, True),
        ("", ALICE, False, False),
        ("", "User:root", True, True),
    ],
)
def test_roles_are_those_of_the_setting(text: str, principal: str, reads: bool, writes: bool) -> None:
    roles = HttpRoles.parse(text, ["User:root"])
    assert (roles.includes(principal, Role.READ), roles.includes(principal, Role.WRITE)) == (reads, writes)


@pytest.mark.parametrize("text", ["write", "write=alice", "admin=User:alice", "=User:alice", "write=User:", "read:*"])
def test_text_that_gives_no_role_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a role of a principal") as raised:
        HttpRoles.parse(f"read=*;{text}")
    assert raised.value.hint
