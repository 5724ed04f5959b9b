from __future__ import annotations

import pytest

from ottla.model.broker_settings import (
    BROKER_SETTINGS,
    LOG_CLEANUP_POLICY,
    LOG_FLUSH_POLICY,
    LOG_SEGMENT_BYTES,
)
from ottla.model.errors import ConfigError
from ottla.model.setting import AnySetting, Setting, ValueType, flag, number
from ottla.model.topic_settings import SYNONYMS, TOPIC_SETTINGS

_EVERY: list[AnySetting] = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


@pytest.mark.parametrize("text", ["1048576", " 1048576 ", "+1048576"])
def test_whole_number_is_read_as_java_reads_it(text: str) -> None:
    assert LOG_SEGMENT_BYTES.parse(text) == 1_048_576


@pytest.mark.parametrize("text", ["", "12x", "1_000", "1e6", "0x10", "1048576.0", "١٢", "9" * 400])
def test_whole_number_refuses_anything_else_with_what_it_takes(text: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes") as caught:
        LOG_SEGMENT_BYTES.parse(text)
    assert (
        caught.value.hint == "log.segment.bytes takes a whole number from 14 to 2147483647; the default is 1073741824"
    )
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize(
    ("text", "problem"), [("13", "is too small"), ("2147483648", "does not fit int"), ("-1", "is too small")]
)
def test_whole_number_refuses_what_its_bounds_exclude(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        LOG_SEGMENT_BYTES.parse(text)


def test_choice_refuses_another_word_and_names_the_choices() -> None:
    assert LOG_FLUSH_POLICY.parse("os") == "os"
    with pytest.raises(ConfigError) as caught:
        LOG_FLUSH_POLICY.parse("fsync")
    assert caught.value.hint == "log.flush.policy takes one of ack, interval, os; the default is ack"


def test_list_is_split_at_commas_and_checked_by_element() -> None:
    assert LOG_CLEANUP_POLICY.parse("compact, delete") == ("compact", "delete")
    assert LOG_CLEANUP_POLICY.parse("") == ()
    with pytest.raises(ConfigError, match="unknown element 'shred'"):
        LOG_CLEANUP_POLICY.parse("delete,shred")
    with pytest.raises(ConfigError, match="twice"):
        LOG_CLEANUP_POLICY.parse("delete,delete")


def test_flag_takes_any_case_and_nothing_but_true_and_false() -> None:
    setting = flag("some.flag", False, "A flag.")
    assert setting.parse("TRUE") is True
    assert setting.parse("false") is False
    with pytest.raises(ConfigError, match="neither true nor false"):
        setting.parse("yes")


def test_flag_with_one_choice_refuses_the_other() -> None:
    setting = flag("some.flag", False, "A flag.", choices=("false",))
    assert setting.parse("false") is False
    with pytest.raises(ConfigError, match="is not offered"):
        setting.parse("true")


@pytest.mark.parametrize("text", ["nan", "inf", "-0.1", "1.1", "half"])
def test_number_refuses_values_that_are_not_finite_or_not_within_bounds(text: str) -> None:
    with pytest.raises(ConfigError):
        number("some.ratio", 0.5, "A ratio.", minimum=0, maximum=1, honoured=True).parse(text)


def test_secret_is_never_repeated_in_an_error() -> None:
    secret = Setting(name="some.password", type=ValueType.PASSWORD, default="", about="A secret.", choices=("x",))
    with pytest.raises(ConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_every_default_is_what_its_own_text_is_read_as() -> None:
    shown = [(setting, text) for setting in _EVERY if (text := setting.format(setting.default)) is not None]
    assert len(shown) > 100
    assert [setting.name for setting, text in shown if setting.parse(text) != setting.default] == []


def test_every_about_is_a_sentence() -> None:
    texts = [setting.about for setting in _EVERY]
    assert [text for text in texts if not ((text[0].isupper() or text[0] == "`") and text.endswith("."))] == []


def test_every_synonym_is_of_a_known_topic_setting_and_has_its_type() -> None:
    assert SYNONYMS.keys() <= TOPIC_SETTINGS.keys()
    whole = {ValueType.INT, ValueType.LONG}
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            types = {TOPIC_SETTINGS[name].type, synonym.setting.type}
            assert len(types) == 1 or types <= whole, f"{name} and {synonym.setting.name}"


def test_topic_default_equals_the_default_of_its_last_synonym() -> None:
    for name, synonyms in SYNONYMS.items():
        default = synonyms[-1].setting.default
        scaled = default * synonyms[-1].factor if isinstance(default, int) else default
        assert TOPIC_SETTINGS[name].default == scaled, name
