"""Settings in force: a frozen view over the tables, typed by the setting that is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar, cast

from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.security_settings import LISTENER_SETTINGS
from ottla.model.setting import AnySetting, Setting, SettingValue, Source, setting_named
from ottla.model.topic_settings import SYNONYMS, TOPIC_SETTINGS

T = TypeVar("T", bound=SettingValue)
_LISTENER_PREFIX: Final = "listener.name."


class Given(NamedTuple):
    """A given value and its source: `origin` is for people, `source` for DescribeConfigs."""

    value: SettingValue
    source: Source
    origin: str


class ListenerKey(NamedTuple):
    """A setting of one listener: `listener.name.<listener>.<name>`."""

    listener: str
    name: str


class BrokerSettings:
    """The broker's settings.  `settings[LOG_SEGMENT_BYTES]` is the value given, or the default."""

    __slots__ = ("_given", "_of_listeners")

    def __init__(
        self, given: Mapping[str, Given] | None = None, of_listeners: Mapping[ListenerKey, Given] | None = None
    ) -> None:
        self._given: Final = dict(given or {})
        self._of_listeners: Final = dict(of_listeners or {})
        assert self._given.keys() <= BROKER_SETTINGS.keys()

    @classmethod
    def of(cls, texts: Mapping[str, str], *, origin: str = "given") -> BrokerSettings:
        """Settings from names and texts.  Raises `ConfigError`, for unknown names too."""
        return cls().overlaid(texts, source=Source.STATIC_BROKER, origin=origin)

    def overlaid(self, texts: Mapping[str, str], *, source: Source, origin: str) -> BrokerSettings:
        """These settings with others over them."""
        given, of_listeners = dict(self._given), dict(self._of_listeners)
        for name, text in texts.items():
            key = listener_key(name)
            if key is not None:
                of_listeners[key] = Given(LISTENER_SETTINGS[key.name].parse(text), source, origin)
                continue
            setting = broker_setting(name)
            given[setting.name] = Given(setting.parse(text), source, origin)
        return BrokerSettings(given, of_listeners)

    def of_listener(self, listener: str) -> BrokerSettings:
        """The settings of one listener: its own over the broker's."""
        own = {
            key.name: given
            for key, given in self._of_listeners.items()
            if key.listener == listener.lower() and key.name in BROKER_SETTINGS
        }
        return BrokerSettings({**self._given, **own}, self._of_listeners)

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
        given = dict(_all_inherited(broker))
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


# Each topic that is created needs them; a process has one broker's settings, which never change.
@lru_cache(maxsize=1)
def _all_inherited(broker: BrokerSettings) -> Mapping[str, Given]:
    return MappingProxyType({name: inherited(setting, broker) for name, setting in TOPIC_SETTINGS.items()})


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


def listener_key(name: str) -> ListenerKey | None:
    """The parts of `listener.name.<listener>.<name>`, when a listener can have that setting for itself."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    listener, _, own_name = name.removeprefix(_LISTENER_PREFIX).partition(".")
    return ListenerKey(listener.lower(), own_name) if listener and own_name in LISTENER_SETTINGS else None


_BY_ALIAS: Final[Mapping[str, AnySetting]] = {
    alias: setting for setting in BROKER_SETTINGS.values() for alias in setting.aliases
}
