"""Settings from a file: Kafka's `server.properties`, or TOML when its name ends so."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ottla.model.broker_settings import ZOOKEEPER_CONNECT
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.model.properties import parse_properties
from ottla.model.setting_sources import Notice, RawSetting, from_command_line, from_environment, resolve
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.runtime.text_file import read_text_file

CONFIG_FILE_BYTES_MAX: Final = 1 * MIB
CONFIG_FILE_HINT: Final = "is it a configuration file?"


def read_config_file(path: Path) -> list[RawSetting]:
    """The settings of a file, in its order.  Raises `ConfigError`."""
    content = read_text_file(path, CONFIG_FILE_BYTES_MAX, CONFIG_FILE_HINT)
    if path.suffix.lower() == ".toml":
        return list(_from_toml(content, path.name))
    try:
        found = list(parse_properties(content))
    except ConfigError as error:
        raise ConfigError(f"{path.name} {error}", hint=error.hint) from None
    return [RawSetting(name, text, f"{path.name} line {number}") for name, text, number in found]


def _from_toml(content: str, file_name: str) -> Iterator[RawSetting]:
    # Few files are TOML.
    import tomllib

    try:
        document = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{file_name}: {error}",
            hint="a name that extends another one needs quotes: "
            '"max.connections.per.ip" = 10; text values need them too: log.dirs = "/data"',
        ) from error
    yield from _flattened(document, "", file_name)


def _flattened(table: Mapping[str, object], prefix: str, file_name: str) -> Iterator[RawSetting]:
    """`[log] segment.bytes = 1` and `log.segment.bytes = 1` are equal: tables are the dots of Kafka's names."""
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flattened(value, name + ".", file_name)
        else:
            yield RawSetting(name, _text(name, value, file_name), file_name)


def _text(name: str, value: object, file_name: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, list) and all(isinstance(element, str) for element in value):
        return ",".join(value)
    kind = type(value).__name__
    raise ConfigError(f"{file_name}: {name} is a {kind}", hint="write text, a number, true, false or a list of texts")


log = logging.getLogger(__name__)


def given_settings(assignments: Iterable[str], config: Path | None, *, zookeeper: str | None = None) -> BrokerSettings:
    """`assignments`: of --set.  `zookeeper`: of a separate flag, which wins over --set."""
    flags = from_command_line(assignments)
    if zookeeper is not None:
        flags = [raw for raw in flags if raw.name != ZOOKEEPER_CONNECT.name]
        flags.append(RawSetting(ZOOKEEPER_CONNECT.name, zookeeper, "--zookeeper"))
    environment, environment_notices = from_environment(os.environ)
    file: list[RawSetting] = [] if config is None else read_config_file(config)
    settings, notices = resolve([flags, environment, file])
    for notice in (*environment_notices, *notices):
        _log_notice(notice)
    return settings


def file_settings(config: Path) -> BrokerSettings:
    """Those of a file alone.  Raises ConfigError."""
    settings, notices = resolve([read_config_file(config)])
    for notice in notices:
        _log_notice(notice)
    return settings


def _log_notice(notice: Notice) -> None:
    level = logging.WARNING if notice.is_warning else logging.INFO
    log.log(level, notice.event, extra=fields(**notice.facts))
