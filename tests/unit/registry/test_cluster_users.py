"""Passwords of the registry's clients are those with which the cluster accepts a login."""

from __future__ import annotations

import socket

import pytest

from ottla.broker.security.http_logins import UsersUnavailable
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.security.settings import PLAINTEXT
from ottla.model.errors import ConfigError
from ottla.registry.cluster_users import ClusterUsers
from ottla.security.secret import Secret
from ottla.testing.fake_clock import FakeClock

OWN = client_security(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "registry",
        "sasl.password": "secret",
    }
)


def test_connection_without_a_login_verifies_no_passwords() -> None:
    with pytest.raises(ConfigError, match=r"authentication.method=BASIC .* by PLAINTEXT") as raised:
        ClusterUsers("127.0.0.1:9092", PLAINTEXT, FakeClock())
    assert "processes.command.config" in (raised.value.hint or "")


def test_cluster_that_cannot_be_reached_makes_no_password_wrong() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        users = ClusterUsers(f"127.0.0.1:{unused.getsockname()[1]}", OWN, FakeClock())
        with pytest.raises(UsersUnavailable, match="the cluster verifies no password now"):
            users.check_of("alice").is_password(Secret("a password"))


def test_password_that_no_login_can_have_is_wrong_without_one() -> None:
    users = ClusterUsers("127.0.0.1:1", OWN, FakeClock())
    assert not users.check_of("alice").is_password(Secret(""))
