"""The settings with which a process connects to ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.coordination.zookeeper.node_access import CREATOR_ONLY, OPEN
from ottla.coordination.zookeeper.security import UNSECURED, client_security, zookeeper_security
from ottla.coordination.zookeeper.tls import ZooKeeperTls
from ottla.model.errors import ConfigError
from ottla.model.settings import BrokerSettings

TLS = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/ca.pem"}


def test_without_settings_nodes_are_open_and_there_is_no_tls() -> None:
    assert zookeeper_security(BrokerSettings()) == UNSECURED
    assert UNSECURED.access("/acls") == OPEN


def test_digest_is_read_from_a_file_of_its_owner_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "digest"
    path.write_text("ottla:secret\n")
    path.chmod(0o600)
    found = client_security({"zookeeper.digest.file": str(path)})
    assert found.auth_data == [("digest", "ottla:secret")]
    assert found.access("/acls") == CREATOR_ONLY
    assert "secret" not in repr(found)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read"):
        client_security({"zookeeper.digest.file": str(path)})


def test_brokers_can_use_the_nodes_of_consumers() -> None:
    settings = {"zookeeper.digest": "brokers:one", "zookeeper.consumers.digest": "consumers:two"}
    assert [each for _, each in zookeeper_security(BrokerSettings.of(settings)).auth_data] == [
        "brokers:one",
        "consumers:two",
    ]


def test_first_round_of_a_change_logs_in_and_creates_open_nodes() -> None:
    found = zookeeper_security(BrokerSettings.of({"zookeeper.digest": "ottla:secret", "zookeeper.set.acl": "false"}))
    assert found.auth_data
    assert found.access("/acls") == OPEN


def test_tls_needs_the_ca_and_is_not_half_set() -> None:
    assert client_security(TLS).tls == ZooKeeperTls("/ca.pem")
    with pytest.raises(ConfigError, match="needs the CAs"):
        client_security({"zookeeper.ssl.client.enable": "true"})
    with pytest.raises(ConfigError, match=r"client\.enable is not"):
        client_security({"zookeeper.ssl.truststore.location": "/ca.pem"})
    with pytest.raises(ConfigError, match="only PEM"):
        client_security({**TLS, "zookeeper.ssl.truststore.type": "JKS"})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"zookeeper.set.acl": "true"}, "needs the user"),
        ({"zookeeper.consumers.digest": "a:secret"}, "zookeeper.digest is not"),
        ({"zookeeper.digest": "a:secret", "zookeeper.consumers.digest": "a:secret"}, "the same user 'a'"),
        ({"zookeeper.digest": "a:secret", "zookeeper.digest.file": "/x"}, "both set"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as failure:
        zookeeper_security(BrokerSettings.of(settings))
    assert "secret" not in str(failure.value)


def test_unknown_setting_of_a_client_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as failure:
        client_security({"zookeeper.ssl.client.enabled": "true"})
    assert failure.value.hint == "did you mean zookeeper.ssl.client.enable?"


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.truststore\.location: cannot read CAs"):
        ZooKeeperTls(str(tmp_path / "none.pem")).context()
