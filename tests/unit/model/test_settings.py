from __future__ import annotations

import pytest

from ottla.model import broker_settings as broker
from ottla.model import topic_settings as topic
from ottla.model.errors import ConfigError
from ottla.model.security_settings import SSL_CLIENT_AUTH
from ottla.model.setting import Source
from ottla.model.settings import BrokerSettings, TopicSettings


def test_setting_has_its_default_when_nothing_was_given() -> None:
    assert BrokerSettings()[broker.LOG_SEGMENT_BYTES] == 1024**3
    assert BrokerSettings()[broker.LOG_RETENTION_MS] is None


def test_setting_has_the_value_given() -> None:
    settings = BrokerSettings.of({"log.segment.bytes": "2048"})
    assert settings[broker.LOG_SEGMENT_BYTES] == 2048
    given = settings.given(broker.LOG_SEGMENT_BYTES)
    assert given is not None
    assert given.source is Source.STATIC_BROKER


def test_older_name_sets_the_same_setting() -> None:
    assert BrokerSettings.of({"broker.id": "7"})[broker.NODE_ID] == 7
    assert BrokerSettings.of({"log.dir": "/data"})[broker.LOG_DIRS] == "/data"


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerSettings.of({"log.segmnt.bytes": "1"})
    assert caught.value.hint == "did you mean log.segment.bytes?"


def test_later_layer_wins_and_leaves_the_earlier_view_as_it_was() -> None:
    first = BrokerSettings.of({"num.partitions": "3"})
    second = first.overlaid({"num.partitions": "5"}, source=Source.DYNAMIC_BROKER, origin="admin")
    assert (first[broker.NUM_PARTITIONS], second[broker.NUM_PARTITIONS]) == (3, 5)


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_comes_from_ms_then_minutes_then_hours(given: dict[str, str], expected_ms: int) -> None:
    assert TopicSettings({}, BrokerSettings.of(given))[topic.RETENTION_MS] == expected_ms


def test_topic_value_wins_over_the_brokers_synonym() -> None:
    settings = BrokerSettings.of({"log.segment.bytes": "4096"})
    assert TopicSettings({}, settings)[topic.SEGMENT_BYTES] == 4096
    assert TopicSettings({"segment.bytes": "2048"}, settings)[topic.SEGMENT_BYTES] == 2048


def test_unknown_topic_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        TopicSettings({"retension.ms": "1"}, BrokerSettings())
    assert caught.value.hint == "did you mean retention.ms?"


def test_listener_has_its_own_settings_over_the_brokers() -> None:
    settings = BrokerSettings.of({"ssl.client.auth": "none", "listener.name.Internal.ssl.client.auth": "required"})
    assert settings[SSL_CLIENT_AUTH] == "none"
    assert settings.of_listener("INTERNAL")[SSL_CLIENT_AUTH] == "required"
    assert settings.of_listener("SSL")[SSL_CLIENT_AUTH] == "none"


def test_listener_has_no_setting_for_itself_that_concerns_the_broker() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.ssl\.node\.id is not a setting"):
        BrokerSettings.of({"listener.name.ssl.node.id": "1"})
