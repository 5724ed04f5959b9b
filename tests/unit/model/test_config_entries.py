from __future__ import annotations

from ottla.model.config_entries import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker,
    describe_every_broker,
    describe_topic,
)
from ottla.model.dynamic_broker_settings import DYNAMIC_BROKER_SETTINGS
from ottla.model.setting import Source, ValueType
from ottla.model.settings import BrokerSettings


def _entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.name == name)


def test_topic_entry_shows_its_own_value_before_its_synonyms() -> None:
    settings = BrokerSettings.of({"log.retention.minutes": "10"})
    entry = _entry(describe_topic({"retention.ms": "5000"}, settings), "retention.ms")
    assert (entry.value, entry.source, entry.type) == ("5000", Source.TOPIC, ValueType.LONG)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "5000", Source.TOPIC),
        ConfigSynonym("log.retention.minutes", "10", Source.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_topic_entry_shows_what_it_inherits_in_its_own_unit() -> None:
    settings = BrokerSettings.of({"log.retention.minutes": "10"})
    entry = _entry(describe_topic({}, settings), "retention.ms")
    assert (entry.value, entry.source) == ("600000", Source.STATIC_BROKER)


def test_topic_without_values_shows_defaults_of_all_of_kafkas_keys() -> None:
    entries = describe_topic({}, BrokerSettings())
    assert {entry.source for entry in entries} == {Source.DEFAULT}
    assert len(entries) == 35, "33 of Apache Kafka 4.1, flush.policy and record.validation"
    assert _entry(entries, "cleanup.policy").value == "delete"
    assert not any(entry.is_read_only for entry in entries)


def test_broker_entries_read_at_start_are_read_only_and_mark_defaults() -> None:
    entries = describe_broker(BrokerSettings.of({"num.partitions": "3"}))
    entry = _entry(entries, "num.partitions")
    assert (entry.value, entry.source) == ("3", Source.STATIC_BROKER)
    assert entry.synonyms == (
        ConfigSynonym("num.partitions", "3", Source.STATIC_BROKER),
        ConfigSynonym("num.partitions", "1", Source.DEFAULT),
    )
    assert _entry(entries, "log.retention.ms").value is None
    assert {entry.name for entry in entries if not entry.is_read_only} == DYNAMIC_BROKER_SETTINGS.keys()


def test_setting_of_a_running_broker_wins_over_that_of_all() -> None:
    name = "follower.replication.throttled.rate"
    unset = _entry(describe_broker(BrokerSettings()), name)
    assert (unset.value, unset.source) == (str(2**63 - 1), Source.DEFAULT)
    of_all = _entry(describe_broker(BrokerSettings(), {}, {name: "7"}), name)
    assert (of_all.value, of_all.source) == ("7", Source.DYNAMIC_DEFAULT_BROKER)
    own = _entry(describe_broker(BrokerSettings(), {name: "5"}, {name: "7"}), name)
    assert (own.value, own.source) == ("5", Source.DYNAMIC_BROKER)
    assert [synonym.value for synonym in own.synonyms] == ["5", "7", str(2**63 - 1)]
    assert [(entry.name, entry.value) for entry in describe_every_broker({name: "7"})] == [(name, "7")]
