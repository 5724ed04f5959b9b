"""The precedence of settings: command line, then environment, then file, then default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.errors import ConfigError
from ottla.model.kafka_keys import IGNORED_KAFKA_KEYS, is_guard_key, is_ignored_kafka_key
from ottla.model.nearest import nearest_name
from ottla.model.security_settings import LISTENER_SETTINGS
from ottla.model.setting import AnySetting, SettingValue, Source
from ottla.model.settings import BrokerSettings, Given, listener_key
from ottla.model.topic_settings import SYNONYMS

ENVIRONMENT_PREFIX: Final = "OTTLA_"
_UNGUARDED: Final = "it asks for a protection that Ottla does not offer: docs/security.md lists what it does"


class RawSetting(NamedTuple):
    """A name and a text as given; `origin` says where: `server.properties line 3`."""

    name: str
    text: str
    origin: str


class Notice(NamedTuple):
    """Something that the operator should know before the start: the name of an event and its facts."""

    event: str
    facts: Mapping[str, str]

    @property
    def is_warning(self) -> bool:
        """A key of Kafka's without effect is harmless, unless it was meant to protect the broker."""
        return self.event != "setting.ignored" or self.facts["reason"] == _UNGUARDED


class _Name(NamedTuple):
    setting: AnySetting
    is_alias: bool


_NAMES: Final[Mapping[str, _Name]] = {
    **{setting.name: _Name(setting, False) for setting in BROKER_SETTINGS.values()},
    **{alias: _Name(setting, True) for setting in BROKER_SETTINGS.values() for alias in setting.aliases},
}


def resolve(layers: Sequence[Iterable[RawSetting]]) -> tuple[BrokerSettings, list[Notice]]:
    """Settings from layers, the strongest first.

    Unknown names and Kafka's names that we ignore become notices; a value that cannot be used raises
    `ConfigError`, even where a stronger layer hides it, because a later start would fail on it.
    """
    given: dict[str, Given] = {}
    notices: list[Notice] = []
    for layer in layers:
        for name, found in _read_layer(layer, notices).items():
            given.setdefault(name, found)
    notices.extend(_hidden(given))
    of_listeners = {key: given.pop(name) for name in list(given) if (key := listener_key(name)) is not None}
    return BrokerSettings(given, of_listeners), notices


def _hidden(given: Mapping[str, Given]) -> Iterator[Notice]:
    """Of several units of one setting (ms, minutes, hours) only the first counts, in any layer."""
    for synonyms in SYNONYMS.values():
        names = [synonym.setting.name for synonym in synonyms if synonym.setting.name in given]
        for name in names[1:]:
            yield Notice("setting.hidden", {"name": name, "origin": given[name].origin, "by": names[0]})


def from_environment(environment: Mapping[str, str]) -> tuple[list[RawSetting], list[Notice]]:
    """Settings as `OTTLA_LOG_SEGMENT_BYTES`.

    Other variables share the prefix, so an unknown one is reported only when it resembles a setting.
    """
    known = {_variable(name): name for name in (*_NAMES, *IGNORED_KAFKA_KEYS)}
    found: list[RawSetting] = []
    notices: list[Notice] = []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = known.get(variable)
        if name is not None:
            found.append(RawSetting(name, text, f"environment {variable}"))
            continue
        nearest = nearest_name(variable, map(_variable, _NAMES))
        if nearest is not None:
            notices.append(Notice("setting.unknown", {"name": variable, "origin": "environment", "nearest": nearest}))
    return found, notices


def from_command_line(assignments: Iterable[str]) -> list[RawSetting]:
    """Settings as `--set log.segment.bytes=1048576`."""
    found: list[RawSetting] = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                f"--set {assignment!r} has no '='", hint="write --set name=value, such as num.partitions=4"
            )
        found.append(RawSetting(name.strip(), text, "command line"))
    return found


def _read_layer(layer: Iterable[RawSetting], notices: list[Notice]) -> dict[str, Given]:
    """The last of equal names wins, as in Java's properties; a name wins over its older names."""
    by_name: dict[str, Given] = {}
    by_alias: dict[str, Given] = {}
    for raw in layer:
        key = listener_key(raw.name)
        if key is not None:
            value = _parse(LISTENER_SETTINGS[key.name], raw)
            by_name[raw.name] = Given(value, Source.STATIC_BROKER, raw.origin)
            continue
        known = _NAMES.get(raw.name)
        if known is None:
            notices.append(_notice_of_unused(raw))
            continue
        target = by_alias if known.is_alias else by_name
        if known.setting.name in target:
            notices.append(Notice("setting.repeated", {"name": raw.name, "origin": raw.origin}))
        target[known.setting.name] = Given(_parse(known.setting, raw), Source.STATIC_BROKER, raw.origin)
    return {**by_alias, **by_name}


def _parse(setting: AnySetting, raw: RawSetting) -> SettingValue:
    try:
        return setting.parse(raw.text)
    except ConfigError as error:
        raise ConfigError(f"{error} ({raw.origin})", hint=error.hint) from None


def _notice_of_unused(raw: RawSetting) -> Notice:
    if is_ignored_kafka_key(raw.name):
        reason = _UNGUARDED if is_guard_key(raw.name) else "it has no effect here"
        return Notice("setting.ignored", {"name": raw.name, "origin": raw.origin, "reason": reason})
    nearest = _meant(raw.name)
    facts = {"name": raw.name, "origin": raw.origin}
    return Notice("setting.unknown", facts if nearest is None else {**facts, "nearest": nearest})


def _meant(name: str) -> str | None:
    """The probable intention: the broker's name for a topic's setting, or the nearest spelling."""
    synonyms = SYNONYMS.get(name)
    return synonyms[0].setting.name if synonyms else nearest_name(name, _NAMES)


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
