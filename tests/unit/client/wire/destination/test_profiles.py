"""The files of profiles: who may read them, and which one is in use."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ottla.client.wire.destination.profiles import (
    ProfileError,
    ProfileFolder,
    is_secret,
    profiles_folder,
    with_absolute_paths,
)

SETTINGS = {"bootstrap.servers": "live:9093", "sasl.password": " a\\b=c"}


@pytest.fixture
def folder(tmp_path: Path) -> ProfileFolder:
    return ProfileFolder(tmp_path / "ottla" / "profiles")


def test_profile_is_read_as_it_was_written(folder: ProfileFolder) -> None:
    folder.write("live", SETTINGS)
    assert folder.read("live").properties == SETTINGS
    assert folder.names() == ["live"]


def test_profile_is_readable_by_its_owner_only(folder: ProfileFolder) -> None:
    path = folder.write("live", SETTINGS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_profile_that_others_can_read_is_refused(folder: ProfileFolder, mode: int) -> None:
    path = folder.write("live", SETTINGS)
    path.chmod(mode)
    with pytest.raises(ProfileError, match=f"open to other users: .* has the mode {mode:04o}") as refused:
        folder.read("live")
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(f"chmod 600 {path}")


def test_profile_that_others_could_read_is_private_once_it_is_replaced(folder: ProfileFolder) -> None:
    folder.write("live", SETTINGS).chmod(0o644)
    folder.write("live", SETTINGS)
    assert folder.read("live").bootstrap == "live:9093"


def test_profile_in_use_is_remembered_until_it_is_deleted(folder: ProfileFolder) -> None:
    assert folder.in_use() is None
    folder.write("live", SETTINGS)
    folder.write("test", SETTINGS)
    folder.use("live")
    folder.delete("test")
    assert folder.in_use() == "live"
    folder.delete("live")
    assert folder.in_use() is None
    folder.use(None)


def test_profile_that_does_not_exist_is_neither_used_nor_deleted(folder: ProfileFolder) -> None:
    folder.write("production", SETTINGS)
    for act in (folder.use, folder.delete, folder.read):
        with pytest.raises(ProfileError, match="there is no profile prodution") as refused:
            act("prodution")
        assert refused.value.hint == "did you mean production?"


@pytest.mark.parametrize("name", ["", "../live", "a/b", ".hidden", "-b", "x" * 65, "a\nb"])
def test_name_cannot_leave_the_folder(folder: ProfileFolder, name: str) -> None:
    with pytest.raises(ProfileError, match="is not a profile's name"):
        folder.path_of(name)


def test_profile_without_an_address_is_refused(folder: ProfileFolder) -> None:
    folder.write("half", {"security.protocol": "SSL"})
    with pytest.raises(ProfileError, match=r"half has no bootstrap\.servers"):
        folder.read("half")


def test_folder_is_where_the_xdg_specification_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert profiles_folder({"XDG_CONFIG_HOME": "/etc/mine"}) == Path("/etc/mine/ottla/profiles")
    for environment in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert profiles_folder(environment) == tmp_path / ".config" / "ottla" / "profiles"


def test_files_are_named_from_the_root() -> None:
    given = {"ssl.ca.location": "ca.pem", "sasl.password.file": "/p", "sasl.username": "ca.pem", "ssl.key.location": ""}
    assert with_absolute_paths(given, Path("/here")) == {
        "ssl.ca.location": "/here/ca.pem",
        "sasl.password.file": "/p",
        "sasl.username": "ca.pem",
        "ssl.key.location": "",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sasl.password", True),
        ("sasl.jaas.config", True),
        ("ssl.key.pem", True),
        ("ssl.keystore.key", True),
        ("sasl.oauthbearer.client.secret", True),
        ("zookeeper.digest", True),
        ("sasl.password.file", False),
        ("ssl.ca.pem", False),
        ("sasl.username", False),
        ("bootstrap.servers", False),
    ],
)
def test_values_of_secrets_are_not_shown(name: str, expected: bool) -> None:
    assert is_secret(name) is expected
