from __future__ import annotations

import pytest

from ottla.broker import log_configs
from ottla.broker.log_configs import LogConfigs, log_config
from ottla.model.settings import BrokerSettings


def test_config_is_made_once_for_the_same_overrides() -> None:
    configs = LogConfigs(BrokerSettings())
    compacted = {"cleanup.policy": "compact", "segment.bytes": "1000000"}
    made = configs.of(compacted)
    assert made == log_config(compacted, BrokerSettings())
    assert configs.of(dict(reversed(compacted.items()))) is made
    assert configs.of({}) == log_config({}, BrokerSettings())
    assert configs.of({"cleanup.policy": "compact"}) != made


def test_few_configs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_configs, "CONFIGS_KEPT_MAX", 2)
    configs = LogConfigs(BrokerSettings())
    for size_bytes in range(1_000_000, 1_000_010):
        assert configs.of({"segment.bytes": str(size_bytes)}).segment_bytes == size_bytes
    assert len(configs._made) <= 2
