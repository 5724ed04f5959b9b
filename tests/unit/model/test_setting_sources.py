from __future__ import annotations

import pytest

from ottla.model.broker_settings import BROKER_SETTINGS, LOG_DIRS, LOG_SEGMENT_BYTES, NODE_ID, NUM_PARTITIONS
from ottla.model.errors import ConfigError
from ottla.model.setting_sources import IGNORED_KAFKA_KEYS, RawSetting, from_command_line, from_environment, resolve
from ottla.model.settings import TopicSettings
from ottla.model.topic_settings import RETENTION_MS


def _raw(name: str, text: str, origin: str = "file line 1") -> RawSetting:
    return RawSetting(name, text, origin)


def test_command_line_wins_over_environment_over_file() -> None:
    file = [_raw("log.segment.bytes", "1000"), _raw("num.partitions", "1"), _raw("node.id", "1")]
    environment, _ = from_environment({"OTTLA_LOG_SEGMENT_BYTES": "2000", "OTTLA_NUM_PARTITIONS": "2"})
    flags = from_command_line(["log.segment.bytes=3000"])
    settings, notices = resolve([flags, environment, file])
    assert (settings[LOG_SEGMENT_BYTES], settings[NUM_PARTITIONS], settings[NODE_ID]) == (3000, 2, 1)
    assert notices == []
    given = settings.given(NUM_PARTITIONS)
    assert given is not None
    assert given.origin == "environment OTTLA_NUM_PARTITIONS"


def test_newer_name_wins_over_older_in_one_layer_in_any_order() -> None:
    for layer in (
        [_raw("log.dirs", "/new"), _raw("log.dir", "/old")],
        [_raw("log.dir", "/old"), _raw("log.dirs", "/new")],
    ):
        assert resolve([layer])[0][LOG_DIRS] == "/new"


def test_older_name_on_the_command_line_wins_over_newer_in_the_file() -> None:
    settings, _ = resolve([[_raw("broker.id", "2")], [_raw("node.id", "1")]])
    assert settings[NODE_ID] == 2


def test_unknown_name_is_noticed_with_the_nearest() -> None:
    _, notices = resolve([[_raw("log.segmnt.bytes", "1")]])
    (notice,) = notices
    assert notice.event == "setting.unknown"
    assert notice.facts == {"name": "log.segmnt.bytes", "origin": "file line 1", "nearest": "log.segment.bytes"}
    assert notice.is_warning


def test_topics_name_is_noticed_with_the_brokers_name() -> None:
    _, notices = resolve([[_raw("retention.ms", "1")]])
    assert notices[0].facts["nearest"] == "log.retention.ms"


def test_name_that_is_near_nothing_has_no_suggestion() -> None:
    _, notices = resolve([[_raw("colour", "red")]])
    assert "nearest" not in notices[0].facts


def test_value_of_an_unknown_name_is_not_repeated() -> None:
    _, notices = resolve([[_raw("my.password", "hunter2"), _raw("ssl.key.password", "hunter2")]])
    assert "hunter2" not in repr(notices)


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.x.plain.sasl.jaas.config", "zookeeper.digest"])
def test_password_is_not_accepted_as_an_argument_that_other_users_can_read(name: str) -> None:
    with pytest.raises(ConfigError, match="list of processes") as refusal:
        from_command_line([f"{name}=hunter2"])
    assert "hunter2" not in f"{refusal.value} {refusal.value.hint}"


def test_kafkas_key_without_effect_is_noted_and_no_warning() -> None:
    _, notices = resolve([[_raw("num.network.threads", "3")]])
    assert (notices[0].event, notices[0].is_warning) == ("setting.ignored", False)


@pytest.mark.parametrize("name", ["ssl.cipher.suites", "listener.name.x.ssl.cipher.suites"])
def test_kafkas_key_that_was_to_keep_others_out_is_a_warning(name: str) -> None:
    _, notices = resolve([[_raw(name, "x")]])
    assert (notices[0].event, notices[0].is_warning) == ("setting.ignored", True)


def test_name_given_twice_in_a_layer_takes_the_last_and_is_noticed() -> None:
    settings, notices = resolve([[_raw("num.partitions", "1"), _raw("num.partitions", "2", "file line 2")]])
    assert settings[NUM_PARTITIONS] == 2
    assert [(notice.event, notice.facts["origin"]) for notice in notices] == [("setting.repeated", "file line 2")]


def test_bad_value_is_refused_with_its_origin_even_where_another_layer_hides_it() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions: 'many' is not a whole number \(file line 1\)"):
        resolve([[_raw("num.partitions", "3")], [_raw("num.partitions", "many")]])


def test_environment_of_others_is_left_alone_and_a_slip_is_noticed() -> None:
    found, notices = from_environment({"OTTLA_HOME": "/x", "PATH": "/bin", "OTTLA_LOG_SEGMNT_BYTES": "1"})
    assert found == []
    assert [notice.facts["nearest"] for notice in notices] == ["OTTLA_LOG_SEGMENT_BYTES"]


@pytest.mark.parametrize("assignment", ["num.partitions", "=3", " =3", ""])
def test_flag_without_name_and_value_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError, match="has no '='"):
        from_command_line([assignment])


def test_flag_may_hold_further_equal_signs() -> None:
    assert from_command_line(["listeners = A=B"])[0][:2] == ("listeners", " A=B")


def test_no_key_is_both_a_setting_and_ignored() -> None:
    names = {name for setting in BROKER_SETTINGS.values() for name in (setting.name, *setting.aliases)}
    assert not names & IGNORED_KAFKA_KEYS


def test_unit_that_another_unit_hides_is_noticed_in_any_layer() -> None:
    settings, notices = resolve([[_raw("log.retention.hours", "1")], [_raw("log.retention.ms", "5")]])
    (notice,) = notices
    assert (notice.event, notice.facts["name"], notice.facts["by"]) == (
        "setting.hidden",
        "log.retention.hours",
        "log.retention.ms",
    )
    assert notice.is_warning
    assert TopicSettings({}, settings)[RETENTION_MS] == 5
