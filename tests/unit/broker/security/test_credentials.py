"""Users in the tree and in a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.broker.security.credentials import PlainUsers, ScramCredentials, users_of_jaas
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.errors import ConfigError
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram_server import ScramCredential
from ottla.security.secret import Secret

SHA_256 = SaslMechanism.SCRAM_SHA_256


def users_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "users"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_credential_is_that_of_the_mechanism_in_the_tree() -> None:
    credential = ScramCredential.of_password(SHA_256, Secret("secret"), b"salt", 4_096)
    view = ConfigsView(1, {ConfigEntity.user("alice/x"): {SHA_256: credential.to_text()}})
    credentials = ScramCredentials(lambda: view, b"cluster")
    assert credentials.find(SHA_256, "alice/x") == (credential, True)
    assert not credentials.find(SaslMechanism.SCRAM_SHA_512, "alice/x").is_known
    assert not credentials.find(SHA_256, "alice").is_known


def test_unknown_user_is_challenged_with_the_iterations_of_most_users() -> None:
    counts = {"a": 8_192, "b": 8_192, "c": 16_384}
    made = {name: ScramCredential(b"salt", b"k", b"k", count) for name, count in counts.items()}
    view = ConfigsView(1, {ConfigEntity.user(name): {SHA_256: each.to_text()} for name, each in made.items()})
    views = [ConfigsView(0, {}), view]
    credentials = ScramCredentials(lambda: views[0], b"cluster")
    assert credentials.find(SHA_256, "ghost").credential.iterations == 4_096
    views.pop(0)
    assert credentials.find(SHA_256, "ghost").credential.iterations == 8_192
    assert credentials.find(SaslMechanism.SCRAM_SHA_512, "ghost").credential.iterations == 4_096


def test_damaged_credential_is_that_of_an_unknown_user() -> None:
    view = ConfigsView(1, {ConfigEntity.user("alice"): {SHA_256: "salt=x"}})
    assert not ScramCredentials(lambda: view, b"cluster").find(SHA_256, "alice").is_known


def test_users_of_a_file_have_the_text_after_the_first_equal_sign(tmp_path: Path) -> None:
    users = PlainUsers(users_file(tmp_path, "# people\n\nalice=a=b \nbob=x\n"))
    assert users.is_password("alice", Secret("a=b "))
    assert not users.is_password("alice", Secret("a=b"))
    assert not users.is_password("carol", Secret("x"))
    assert not users.is_password("carol", Secret(""))


def test_changed_file_counts_for_the_next_login_and_a_broken_one_does_not(tmp_path: Path) -> None:
    path = users_file(tmp_path, "alice=one\n")
    users = PlainUsers(path)
    users_file(tmp_path, "alice=other\n")
    assert users.is_password("alice", Secret("other"))
    users_file(tmp_path, "no user of any kind\n")
    assert users.is_password("alice", Secret("other"))
    os.unlink(path)
    assert users.is_password("alice", Secret("other"))


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [("alice=x\n", 0o640, "others can read"), ("alice\n", 0o600, "line 1"), ("=x\n", 0o600, "line 1")],
)
def test_file_that_others_can_read_or_that_has_no_users_is_refused(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        PlainUsers(users_file(tmp_path, text, mode))


def test_users_of_the_settings_are_those_of_kafkas_login_module(tmp_path: Path) -> None:
    configured = users_of_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="x" user_admin="x" user_alice="a b";'
    )
    users = PlainUsers(users_file(tmp_path, "bob=y\nadmin=other\n"), configured)
    assert users.is_password("alice", Secret("a b"))
    assert users.is_password("bob", Secret("y"))
    assert users.is_password("admin", Secret("other"))
    assert not users.is_password("username", Secret("admin"))
    assert PlainUsers(None, configured).is_password("admin", Secret("x"))
