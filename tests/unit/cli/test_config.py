"""`ottla config`, against brokers in memory: which changes are refused before a broker gets them."""

from __future__ import annotations

from typing import Final

import pytest
from click.testing import CliRunner, Result

from ottla.cli import config
from ottla.cli.config import check_changes
from ottla.client.admin.configs import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.model.errors import ConfigError, OttlaError
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster

ALL_BROKERS: Final = ConfigResource(ResourceType.BROKER, "")
KNOWN: Final = {
    name: ConfigEntry(name, None, ConfigSource.DEFAULT, False, is_sensitive)
    for name, is_sensitive in (("log.retention.ms", False), ("odd.name", True))
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Nothing is set for all brokers."""
    fake = FakeCluster()
    fake.topic_configs["1"] = {"log.retention.ms": "5", "ssl.keystore.password": ""}

    def open_cluster(bootstrap: str, client_id: str) -> Cluster:
        return fake.client()

    monkeypatch.setattr(config, "open_cluster", open_cluster)
    return fake


def run(verb: str, *arguments: str) -> Result:
    return CliRunner().invoke(config.command, [verb, "--all-brokers", *arguments])


@pytest.mark.parametrize("verb", ["delete", "show"])
def test_setting_of_all_brokers_is_one_that_a_broker_has(fake: FakeCluster, verb: str) -> None:
    refused = run(verb, "log.retention.sm")
    assert isinstance(refused.exception, OttlaError)
    assert str(refused.exception) == "all brokers have no setting 'log.retention.sm'"
    assert refused.exception.hint == "did you mean log.retention.ms?"


def test_setting_that_is_not_set_for_all_brokers_is_known(fake: FakeCluster) -> None:
    assert run("show", "log.retention.ms").stdout.splitlines() == ["KEY VALUE SOURCE"]


@pytest.mark.parametrize("name", ["ssl.keystore.password", "listener.name.web.ssl.key.password"])
def test_secret_that_is_not_set_yet_is_no_argument(fake: FakeCluster, name: str) -> None:
    refused = run("set", f"{name}=geheim")
    assert isinstance(refused.exception, ConfigError)
    assert "list of processes" in str(refused.exception)
    assert ApiKey.INCREMENTAL_ALTER_CONFIGS not in [api for api, _ in fake.brokers[1].seen]


def test_secret_is_what_the_broker_says_or_what_its_name_says() -> None:
    for name in ("odd.name", "sasl.jaas.config"):
        with pytest.raises(ConfigError, match="list of processes"):
            check_changes(ALL_BROKERS, KNOWN, {name: "x"})
    check_changes(ALL_BROKERS, KNOWN, {"log.retention.ms": "5", "odd.name": None})
