"""Topics' settings from a file: JSON, `{"TOPIC": {"KEY": "VALUE"}}`, or properties, `TOPIC/KEY=VALUE`.

`*` means every topic that the file does not name; a topic's own value wins over it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.model.properties import parse_properties
from ottla.model.settings import topic_setting
from ottla.runtime.text_file import read_text_file

# With the default retention, a week, old records would be deleted within minutes.
KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
# A log that was compacted had this policy; but nothing more is compacted until the user decides.
COMPACTED: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2**63 - 1)}


EVERY_TOPIC: Final = "*"
_FILE_BYTES_MAX: Final = 16 * MIB

TopicConfigs = Mapping[str, Mapping[str, str]]


def read_topic_configs(path: Path) -> dict[str, dict[str, str]]:
    """Settings by topic, each checked for name and value.  Raises `ConfigError`."""
    content = read_text_file(path, _FILE_BYTES_MAX, "is it a file of topics' settings?")
    found = _from_json(content, path.name) if content.lstrip().startswith("{") else _from_properties(content, path.name)
    for topic, settings in found.items():
        for name, text in settings.items():
            try:
                topic_setting(name).parse(text)
            except ConfigError as error:
                raise ConfigError(f"{path.name}, topic {topic}: {error}", hint=error.hint) from None
    return found


def settings_of(configs: TopicConfigs, topic: str) -> dict[str, str]:
    """The file's settings of one topic."""
    return {**configs.get(EVERY_TOPIC, {}), **configs.get(topic, {})}


def check_topics(configs: TopicConfigs, topics: Iterable[str], file_name: str) -> None:
    """An unknown topic is a mistake, and its settings would get lost.  Raises `ConfigError`."""
    unknown = sorted(set(configs) - set(topics) - {EVERY_TOPIC})
    if unknown:
        raise ConfigError(
            f"{file_name} has settings for {', '.join(unknown)}, which are not among the topics",
            hint="correct the name or remove the lines",
        )


def _from_json(content: str, file_name: str) -> dict[str, dict[str, str]]:
    try:
        document = json.loads(content)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file_name}: {error}") from error
    found: dict[str, dict[str, str]] = {}
    for topic, settings in document.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"{file_name}: {topic} has no object of settings", hint=_JSON_FORM)
        found[topic] = {name: _text(value, f"{file_name}: {topic}, {name}") for name, value in settings.items()}
    return found


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{where} is neither text nor a number", hint=_JSON_FORM)


def _from_properties(content: str, file_name: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, text, line_number in parse_properties(content):
        topic, slash, setting = name.partition("/")
        if not slash or not topic or not setting:
            raise ConfigError(
                f"{file_name} line {line_number}: {name!r} is not TOPIC/KEY", hint="write clicks/retention.ms=604800000"
            )
        found.setdefault(topic, {})[setting] = text
    return found


_JSON_FORM: Final = 'write {"clicks": {"retention.ms": "604800000"}}'
