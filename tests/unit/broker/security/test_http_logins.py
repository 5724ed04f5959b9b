"""Passwords are verified in bounded threads, once in a while, and every result is reported."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable
from http import HTTPStatus

import pytest

from ottla.broker.net.security_log import SecurityLog
from ottla.broker.security.credentials import ScramCredentials
from ottla.broker.security.http_logins import (
    CHECKS_MAX,
    CHECKS_OF_ADDRESS_MAX,
    HttpLogins,
    PasswordCheck,
    TreeUsers,
    UsersUnavailable,
)
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.errors import WireError
from ottla.security.checked_passwords import RIGHT_FOR_MS
from ottla.security.http_access import HttpAccess, HttpHead, HttpHosts, HttpRefused, HttpRoles, Method, Peer, Role
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_server import VerifiedToken
from ottla.security.scram_server import ScramCredential
from ottla.security.secret import Secret
from ottla.testing.fake_clock import FakeClock

PEER = Peer("192.0.2.7")
ACCESS = HttpAccess(HttpHosts([], ""), Method, HttpRoles.parse("read=*;write=User:alice"))


class Users:
    """alice, whose password is `secret`; each check is counted."""

    def __init__(self, is_password: Callable[[Secret], bool] | None = None) -> None:
        self.checks_count = 0
        self.state = b""
        self._is_password = is_password

    def check_of(self, username: str) -> PasswordCheck:
        def is_password(password: Secret) -> bool:
            self.checks_count += 1
            if self._is_password is not None:
                return self._is_password(password)
            return username == "alice" and password == Secret("secret")

        return PasswordCheck(self.state, is_password)


class Served:
    """Logins, their log's lines, and requests to them."""

    def __init__(self, users: Users | TreeUsers | None = None) -> None:
        self.clock = FakeClock()
        self.lines: list[dict[str, object]] = []
        self.users = users or Users()
        self.logins = HttpLogins(
            "REGISTRY",
            ACCESS,
            SecurityLog(self.clock, lambda line: self.lines.append(json.loads(line))),
            self.clock,
            users=self.users,
            verify_token=_verify,
        )

    async def admit(self, authorization: str | None, role: Role | None = Role.READ, peer: Peer = PEER) -> str:
        headers = [] if authorization is None else [(b"authorization", authorization.encode())]
        return await self.logins.admit(HttpHead("PUT", "/config?x=y", headers), peer, role)


def _verify(token: Secret) -> VerifiedToken:
    if token.reveal() == "expired":
        return VerifiedToken("carol", 0)
    if token.reveal() != "good":
        raise WireError("the token is not valid: InvalidSignatureError")
    return VerifiedToken("carol", 60_000)


def basic(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


ALICE = basic("alice", "secret")


def test_right_password_is_verified_once_in_its_time() -> None:
    users = Users()
    served = Served(users)

    async def run() -> None:
        for _ in range(5):
            assert await served.admit(ALICE, Role.WRITE) == "User:alice"
        assert users.checks_count == 1
        served.clock.advance(RIGHT_FOR_MS)
        await served.admit(ALICE)
        assert users.checks_count == 2
        users.state = b"a new password"
        await served.admit(ALICE)
        assert users.checks_count == 3

    asyncio.run(run())
    assert not served.lines


@pytest.mark.parametrize(
    ("authorization", "user", "error"),
    [
        (basic("alice", "wrong"), "alice", "unknown user or wrong password"),
        (basic("ghost", "secret"), "ghost", "unknown user or wrong password"),
        ("Bearer bad", "", "the token is not valid: InvalidSignatureError"),
        ("Bearer expired", "", "the token has expired"),
    ],
)
def test_failed_login_is_reported_and_its_answer_gives_no_reason(authorization: str, user: str, error: str) -> None:
    served = Served()
    with pytest.raises(HttpRefused, match="the login failed") as refused:
        asyncio.run(served.admit(authorization))
    assert (refused.value.status, refused.value.code) == (HTTPStatus.UNAUTHORIZED, 40101)
    (line,) = served.lines
    assert (line["event"], line["user"], line["peer"], line["error"]) == ("login_failed", user, PEER.host, error)
    assert "wrong" not in json.dumps({**line, "error": ""})


def test_token_and_certificate_are_logins() -> None:
    served = Served()
    assert asyncio.run(served.admit("Bearer good")) == "User:carol"
    assert asyncio.run(served.admit(None, peer=PEER._replace(principal="User:CN=dora"))) == "User:CN=dora"


def test_missing_role_is_reported_with_who_from_where_and_what() -> None:
    served = Served()
    with pytest.raises(HttpRefused, match="403"):
        asyncio.run(served.admit("Bearer good", Role.WRITE))
    (line,) = served.lines
    assert line.pop("time")
    assert line == {
        "event": "denied",
        "principal": "User:carol",
        "peer": PEER.host,
        "listener": "REGISTRY",
        "method": "PUT",
        "path": "/config",
        "role": "write",
    }


def test_request_for_every_client_needs_no_login_but_a_wrong_one_fails() -> None:
    served = Served()
    assert asyncio.run(served.admit(None, None)) == "User:ANONYMOUS"
    with pytest.raises(HttpRefused, match="401"):
        asyncio.run(served.admit(basic("alice", "wrong"), None))


def test_change_is_reported_with_its_status() -> None:
    served = Served()
    served.logins.changed("User:alice", HttpHead("DELETE", "/subjects/a?permanent=true", []), PEER, 200)
    (line,) = served.lines
    assert [line[name] for name in ("event", "principal", "method", "path", "status")] == [
        "changed",
        "User:alice",
        "DELETE",
        "/subjects/a",
        200,
    ]


def test_checks_at_a_time_are_bounded_for_one_address_and_for_all() -> None:
    released = threading.Event()

    def wait(password: Secret) -> bool:
        return released.wait(60)

    served = Served(Users(wait))

    async def run() -> None:
        started = [
            asyncio.create_task(served.admit(basic("alice", f"{host}-{number}"), peer=Peer(f"192.0.2.{host}")))
            for host in range(CHECKS_MAX // CHECKS_OF_ADDRESS_MAX)
            for number in range(CHECKS_OF_ADDRESS_MAX)
        ]
        try:
            await asyncio.sleep(0)
            for peer in (Peer("192.0.2.0"), Peer("198.51.100.1")):
                with pytest.raises(HttpRefused, match="too many logins at a time") as refused:
                    await served.admit(ALICE, peer=peer)
                assert refused.value.status is HTTPStatus.SERVICE_UNAVAILABLE
        finally:
            released.set()
            assert set(await asyncio.gather(*started)) == {"User:alice"}
        assert await served.admit(ALICE) == "User:alice"

    asyncio.run(run())


def test_users_that_cannot_be_verified_now_are_neither_right_nor_wrong() -> None:
    def fail(password: Secret) -> bool:
        raise UsersUnavailable("the cluster does not answer")

    served = Served(Users(fail))
    with pytest.raises(HttpRefused, match="the cluster does not answer") as refused:
        asyncio.run(served.admit(ALICE))
    assert refused.value.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert not served.lines


@pytest.mark.parametrize("mechanism", [SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512])
def test_users_of_the_tree_log_in_by_either_mechanism_once_it_is_read(mechanism: SaslMechanism) -> None:
    credential = ScramCredential.of_password(mechanism, Secret("secret"), b"salt", 4_096)
    views = [ConfigsView(1, {ConfigEntity.user("alice"): {mechanism: credential.to_text()}})]
    users = TreeUsers()
    served = Served(users)
    with pytest.raises(HttpRefused, match="503"):
        asyncio.run(served.admit(ALICE))
    users.open(lambda: views[-1], ScramCredentials(lambda: views[-1], b"cluster"))
    assert asyncio.run(served.admit(ALICE)) == "User:alice"
    for wrong in (basic("alice", "Secret"), basic("ghost", "secret")):
        with pytest.raises(HttpRefused, match="401"):
            asyncio.run(served.admit(wrong))
    # A user that was removed is out at once.
    views.append(ConfigsView(2, {}))
    with pytest.raises(HttpRefused, match="401"):
        asyncio.run(served.admit(ALICE))
