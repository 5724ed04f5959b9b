"""Settings as DescribeConfigs (API key 32) shows them, each value with its source and its synonyms, and the changes of
a topic's or a group's settings: IncrementalAlterConfigs' operations (API key 44, KIP-339).  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.dynamic_broker_settings import DYNAMIC_BROKER_SETTINGS, dynamic_broker_setting
from ottla.model.errors import ConfigError
from ottla.model.group_settings import GROUP_SETTINGS, in_force
from ottla.model.setting import AnySetting, SettingValue, Source, ValueType
from ottla.model.settings import BrokerSettings, inherited, topic_setting
from ottla.model.topic_settings import SYNONYMS, TOPIC_SETTINGS


class ConfigSynonym(NamedTuple):
    """One possible source of a value; the first in the list is in force."""

    name: str
    value: str | None
    source: Source


class ConfigEntry(NamedTuple):
    """One setting of one resource.  `value` is None when unset or secret."""

    name: str
    value: str | None
    source: Source
    type: ValueType
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    about: str


def describe_topic(overrides: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """All settings of a topic with these own values, by name."""
    inherited_entries = _inherited_entries(broker)
    if not overrides:
        return list(inherited_entries)
    return [
        _topic_entry(TOPIC_SETTINGS[entry.name], overrides, broker) if entry.name in overrides else entry
        for entry in inherited_entries
    ]


# Each answer to a topic's creation has them; a process has one broker's settings, which never change.
@lru_cache(maxsize=1)
def _inherited_entries(broker: BrokerSettings) -> tuple[ConfigEntry, ...]:
    return tuple(_topic_entry(TOPIC_SETTINGS[name], {}, broker) for name in sorted(TOPIC_SETTINGS))


def describe_broker(
    broker: BrokerSettings, own: Mapping[str, str] = {}, of_all: Mapping[str, str] = {}
) -> list[ConfigEntry]:
    """All settings of the broker, by name.  Those that are read when it starts are read-only.

    `own` and `of_all`: those that were set while brokers run, for this one and for all.
    """
    entries = [_broker_entry(setting, broker) for setting in BROKER_SETTINGS.values()]
    entries += [_dynamic_entry(setting, own, of_all) for setting in DYNAMIC_BROKER_SETTINGS.values()]
    return sorted(entries, key=lambda entry: entry.name)


def describe_every_broker(of_all: Mapping[str, str]) -> list[ConfigEntry]:
    """What was set for all brokers while they run."""
    return [_dynamic_entry(dynamic_broker_setting(name), {}, of_all) for name in sorted(of_all)]


def describe_group(own: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """All settings of a group with these own values, by name.

    As in Apache Kafka each has no synonym but itself, and a value from the broker's settings is a default.
    """
    entries: list[ConfigEntry] = []
    for name in sorted(GROUP_SETTINGS):
        setting = GROUP_SETTINGS[name]
        value, source = in_force(setting, own, broker), Source.GROUP if name in own else Source.DEFAULT
        synonyms = [ConfigSynonym(name, setting.format(value), source)]
        entries.append(_entry(setting, value, source, synonyms, is_read_only=False))
    return entries


def _topic_entry(setting: AnySetting, overrides: Mapping[str, str], broker: BrokerSettings) -> ConfigEntry:
    synonyms: list[ConfigSynonym] = []
    own = overrides.get(setting.name)
    if own is not None:
        topic_value = topic_setting(setting.name).parse(own)
        synonyms.append(ConfigSynonym(setting.name, setting.format(topic_value), Source.TOPIC))
        value, source = topic_value, Source.TOPIC
    else:
        value, source, _ = inherited(setting, broker)
    for synonym in SYNONYMS.get(setting.name, ()):
        synonyms.extend(_broker_synonyms(synonym.setting, broker))
    return _entry(setting, value, source, synonyms, is_read_only=False)


def _broker_entry(setting: AnySetting, broker: BrokerSettings) -> ConfigEntry:
    given = broker.given(setting)
    value, source = (setting.default, Source.DEFAULT) if given is None else (given.value, given.source)
    return _entry(setting, value, source, _broker_synonyms(setting, broker), is_read_only=True)


def _dynamic_entry(setting: AnySetting, own: Mapping[str, str], of_all: Mapping[str, str]) -> ConfigEntry:
    found = [
        (setting.parse(values[setting.name]), source)
        for values, source in ((own, Source.DYNAMIC_BROKER), (of_all, Source.DYNAMIC_DEFAULT_BROKER))
        if setting.name in values
    ]
    found.append((setting.default, Source.DEFAULT))
    synonyms = [ConfigSynonym(setting.name, setting.format(value), source) for value, source in found]
    return _entry(setting, *found[0], synonyms, is_read_only=False)


def _broker_synonyms(setting: AnySetting, broker: BrokerSettings) -> list[ConfigSynonym]:
    """The given value and the default, under the broker setting's own name and in its own unit."""
    found: list[ConfigSynonym] = []
    given = broker.given(setting)
    if given is not None:
        found.append(ConfigSynonym(setting.name, _shown(setting, given.value), given.source))
    if setting.default is not None:
        found.append(ConfigSynonym(setting.name, _shown(setting, setting.default), Source.DEFAULT))
    return found


def _entry(
    setting: AnySetting, value: SettingValue, source: Source, synonyms: list[ConfigSynonym], *, is_read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=setting.name,
        value=_shown(setting, value),
        source=source,
        type=setting.type,
        is_read_only=is_read_only,
        is_sensitive=setting.is_sensitive,
        synonyms=tuple(synonyms),
        about=setting.about,
    )


def _shown(setting: AnySetting, value: SettingValue) -> str | None:
    return None if setting.is_sensitive else setting.format(value)


Find = Callable[[str], AnySetting]
"""The setting of this name; raises `ConfigError` for an unknown one."""


class ConfigOperation(IntEnum):
    """The operation on a setting; the numbers are the protocol's.  APPEND and SUBTRACT are for lists only."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str | None


def changed_overrides(
    overrides: Mapping[str, str],
    changes: Iterable[ConfigChange],
    broker: BrokerSettings,
    find: Find = topic_setting,
) -> dict[str, str]:
    """A topic's (or with `find`, another resource's) own values after `changes`, all or none.  Raises `ConfigError`."""
    result = dict(overrides)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise ConfigError(f"{change.name} is changed twice in one request", hint="send one change for each setting")
        seen.add(change.name)
        _apply(result, find(change.name), change, broker)
    return result


def checked_overrides(overrides: Mapping[str, str | None], find: Find = topic_setting) -> dict[str, str]:
    """All values of a topic (or with `find`, of another resource), in the stored form.  Raises `ConfigError`."""
    return {name: _normal(find(name), text) for name, text in overrides.items()}


def _apply(result: dict[str, str], setting: AnySetting, change: ConfigChange, broker: BrokerSettings) -> None:
    if change.operation is ConfigOperation.DELETE:
        result.pop(setting.name, None)
    elif change.operation is ConfigOperation.SET:
        result[setting.name] = _normal(setting, change.value)
    else:
        result[setting.name] = _changed_list(setting, change, result.get(setting.name), broker)


def _changed_list(setting: AnySetting, change: ConfigChange, own: str | None, broker: BrokerSettings) -> str:
    if setting.type is not ValueType.LIST:
        word = change.operation.name.lower()
        raise ConfigError(f"{setting.name} is not a list: {word} has no meaning", hint="use set")
    present = setting.parse(own) if own is not None else inherited(setting, broker).value
    named = setting.parse(_present(setting, change.value))
    assert isinstance(present, tuple)
    assert isinstance(named, tuple)
    if change.operation is ConfigOperation.APPEND:
        result = (*present, *(word for word in named if word not in present))
    else:
        result = tuple(word for word in present if word not in named)
    return _normal(setting, ",".join(result))


def _normal(setting: AnySetting, text: str | None) -> str:
    shown = setting.format(setting.parse(_present(setting, text)))
    assert shown is not None
    return shown


def _present(setting: AnySetting, text: str | None) -> str:
    if text is None:
        raise ConfigError(f"{setting.name} has no value", hint="delete it to use the broker's value")
    return text
