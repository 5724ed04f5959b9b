"""Changes of a topic's or a group's settings: IncrementalAlterConfigs' operations (API key 44, KIP-339), pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.model.errors import ConfigError
from ottla.model.setting import AnySetting, ValueType
from ottla.model.settings import BrokerSettings, inherited, topic_setting

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
