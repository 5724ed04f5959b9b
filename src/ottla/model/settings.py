"""Settings in force: a frozen view over the tables, typed by the setting that is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeVar, cast

from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.setting import AnySetting, Setting, SettingValue, Source, setting_named
from ottla.model.topic_settings import SYNONYMS, TOPIC_SETTINGS

T = TypeVar("T", bound=SettingValue)


class Given(NamedTuple):
    """A given value and its source: `origin` is for people, `source` for DescribeConfigs."""

    value: SettingValue
    source: Source
    origin: str


class BrokerSettings:
    """The broker's settings.  `settings[LOG_SEGMENT_BYTES]` is the value given, or the default."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, Given] | None = None) -> None:
        self._given: Final = dict(given or {})
        assert self._given.keys() <= BROKER_SETTINGS.keys()

    @classmethod
    def of(cls, texts: Mapping[str, str], *, origin: str = "given") -> BrokerSettings:
        """Settings from names and texts.  Raises `ConfigError`, for unknown names too."""
        return cls().overlaid(texts, source=Source.STATIC_BROKER, origin=origin)

    def overlaid(self, texts: Mapping[str, str], *, source: Source, origin: str) -> BrokerSettings:
        """These settings with others over them."""
        given = dict(self._given)
        for name, text in texts.items():
            setting = broker_setting(name)
            given[setting.name] = Given(setting.parse(text), source, origin)
        return BrokerSettings(given)

    def __getitem__(self, setting: Setting[T]) -> T:
        given = self._given.get(setting.name)
        return setting.default if given is None else cast("T", given.value)

    def given(self, setting: AnySetting) -> Given | None:
        """The given value of a setting; None where its default applies."""
        return self._given.get(setting.name)

    def all_given(self) -> Iterator[tuple[AnySetting, Given]]:
        """All settings that are not at their default, by name."""
        for name in sorted(self._given):
            yield BROKER_SETTINGS[name], self._given[name]


class TopicSettings:
    """The settings of one topic: its own values over the broker's synonyms over the defaults."""

    __slots__ = ("_given",)

    def __init__(self, overrides: Mapping[str, str], broker: BrokerSettings) -> None:
        given = {name: inherited(setting, broker) for name, setting in TOPIC_SETTINGS.items()}
        for name, text in overrides.items():
            setting = topic_setting(name)
            given[name] = Given(setting.parse(text), Source.TOPIC, "topic")
        self._given: Final[Mapping[str, Given]] = given

    def __getitem__(self, setting: Setting[T]) -> T:
        return cast("T", self._given[setting.name].value)


def inherited(setting: AnySetting, broker: BrokerSettings) -> Given:
    """The value of a topic that does not override it."""
    for synonym in SYNONYMS.get(setting.name, ()):
        given = broker.given(synonym.setting)
        if given is not None and given.value is not None:
            return given._replace(value=in_units_of_topic(given.value, synonym.factor))
    return Given(setting.default, Source.DEFAULT, "default")


def in_units_of_topic(value: SettingValue, factor: int) -> SettingValue:
    """Hours or minutes as milliseconds; a negative number means `never` in every unit."""
    if factor == 1 or not isinstance(value, int):
        return value
    return -1 if value < 0 else value * factor


def broker_setting(name: str) -> AnySetting:
    """The broker setting of this name or older name.  Raises `ConfigError` that names the nearest."""
    return _BY_ALIAS.get(name) or setting_named(name, BROKER_SETTINGS, "the broker")


def topic_setting(name: str) -> AnySetting:
    """The topic setting of this name.  Raises `ConfigError` that names the nearest."""
    return setting_named(name, TOPIC_SETTINGS, "topics")


_BY_ALIAS: Final[Mapping[str, AnySetting]] = {
    alias: setting for setting in BROKER_SETTINGS.values() for alias in setting.aliases
}
