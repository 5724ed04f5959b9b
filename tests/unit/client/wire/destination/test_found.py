"""The rule with real files: the user's profiles, and the cluster that `ottla cluster up` left in this directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ottla
from ottla.client.wire.destination.arguments import destination_and_security
from ottla.client.wire.destination.destination import Given
from ottla.client.wire.destination.found import find_destination, security_of
from ottla.client.wire.destination.local_cluster import LocalCluster, LocalClusterError, write_local_cluster
from ottla.client.wire.destination.profiles import ProfileFolder, profiles_folder
from ottla.client.wire.errors import BadAddress
from ottla.client.wire.security.settings import PLAINTEXT, PasswordLogin
from ottla.security.protocol import SecurityProtocol

LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=ann\nsasl.password=p\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, and no profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def cluster_in(directory: Path, *, is_secure: bool = False) -> Path:
    data_dir = directory / "ottla-cluster"
    data_dir.mkdir()
    write_local_cluster(data_dir, LocalCluster(2181, (9292, 9293), is_secure=is_secure))
    return data_dir


def test_cluster_of_this_directory_is_found(directory: Path) -> None:
    cluster_in(directory)
    found = find_destination(Given())
    assert found.bootstrap == "127.0.0.1:9292,127.0.0.1:9293"
    assert security_of(found) == PLAINTEXT


def test_secured_cluster_of_this_directory_is_entered_as_its_administrator(directory: Path) -> None:
    data_dir = cluster_in(directory, is_secure=True)
    (data_dir / "security").mkdir()
    (data_dir / "security" / "client.properties").write_text(LOGIN)
    login = security_of(find_destination(Given())).login
    assert isinstance(login, PasswordLogin)
    assert login.username == "ann"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
def test_cluster_of_another_user_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = cluster_in(directory).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:  # root's files are trusted
        assert find_destination(Given()).bootstrap.startswith("127.0.0.1:9292")
        os.chown(directory / "ottla-cluster", 4711, 4711)
    with pytest.raises(LocalClusterError, match="belongs to another user"):
        find_destination(Given())


def test_profile_in_use_has_the_address_and_the_login() -> None:
    folder = ProfileFolder(profiles_folder(os.environ))
    folder.write("live", dict(line.split("=") for line in LOGIN.splitlines()) | {"bootstrap.servers": "live:1"})
    folder.use("live")
    destination, security = destination_and_security(None, None)
    assert destination.bootstrap == "live:1"
    assert security.protocol is SecurityProtocol.SASL_PLAINTEXT
    assert destination_and_security("other:1", None)[1] == PLAINTEXT
    assert destination_and_security(None, {"security.protocol": "PLAINTEXT"})[1] == PLAINTEXT


def test_argument_of_several_addresses_is_joined_and_a_wrong_one_refused() -> None:
    assert destination_and_security(["a:1", "b:2"], None)[0].bootstrap == "a:1,b:2"
    with pytest.raises(BadAddress, match="3 is not an address"):
        destination_and_security(3, None)  # type: ignore[arg-type]


def test_producer_without_an_address_connects_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with ottla.Producer[bytes, bytes]() as producer:
        assert producer.bootstrap == "127.0.0.1:1"
    with ottla.Producer[bytes, bytes]("127.0.0.1:2") as producer:
        assert producer.bootstrap == "127.0.0.1:2"


def test_consumer_without_an_address_reports_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "http://x")
    with pytest.raises(BadAddress, match="the address is that of OTTLA_BOOTSTRAP_SERVERS"):
        ottla.SimpleConsumer[bytes, bytes](None, "t", 0)
    with pytest.raises(BadAddress, match="the address is that of OTTLA_BOOTSTRAP_SERVERS"):
        ottla.ConsumerConnector[bytes, bytes](group="g")
    with pytest.raises(BadAddress, match="the address is that of OTTLA_BOOTSTRAP_SERVERS"):
        ottla.Consumer[bytes, bytes](group="g")
    with pytest.raises(BadAddress, match="the address is that of OTTLA_BOOTSTRAP_SERVERS"):
        ottla.Admin()
