from __future__ import annotations

import pytest

from ottla.broker.partitions import topic_configs
from ottla.broker.partitions.topic_configs import LogConfigs, log_config
from ottla.model.settings import BrokerSettings


def test_config_is_made_once_for_the_same_overrides() -> None:
    configs = LogConfigs(BrokerSettings())
    compacted = {"cleanup.policy": "compact", "segment.bytes": "1000000"}
    made = configs.of(compacted)
    assert made == log_config(compacted, BrokerSettings())
    assert configs.of(dict(reversed(compacted.items()))) is made
    assert configs.of({}) == log_config({}, BrokerSettings())
    assert configs.of({"cleanup.policy": "compact"}) != made


def test_unclean_elections_are_allowed_by_the_topic_or_else_by_the_broker() -> None:
    name = "unclean.leader.election.enable"
    assert not LogConfigs(BrokerSettings()).allows_unclean_election({})
    assert LogConfigs(BrokerSettings()).allows_unclean_election({name: "true"})
    allowing = LogConfigs(BrokerSettings.of({name: "true"}))
    assert allowing.allows_unclean_election({"segment.bytes": "1000000"})
    assert not allowing.allows_unclean_election({name: "false"})


def test_few_configs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_configs, "CONFIGS_KEPT_MAX", 2)
    configs = LogConfigs(BrokerSettings())
    for size_bytes in range(1_000_000, 1_000_010):
        assert configs.of({"segment.bytes": str(size_bytes)}).segment_bytes == size_bytes
    assert len(configs._made) <= 2
