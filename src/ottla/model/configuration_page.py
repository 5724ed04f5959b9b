"""docs/configuration.md, made from the tables of settings.

`python -m ottla.model.configuration_page > docs/configuration.md` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from ottla.model.broker_settings import BROKER_SETTING_GROUPS
from ottla.model.group_settings import BOUNDS, GROUP_SETTINGS
from ottla.model.setting import AnySetting
from ottla.model.topic_settings import SYNONYMS, TOPIC_SETTINGS

_COLUMNS: Final = ["setting", "type", "default", "accepted", "meaning"]
_HEAD: Final = """\
# Configuration

<!-- Made by `python -m ottla.model.configuration_page` from the tables beside it; a test fails when it is stale. -->

Settings have Kafka's names, types and defaults. A value is looked for in this order, and the first found holds:

1. the command line: `ottla serve --set log.segment.bytes=1048576` (`--override` is the same);
2. the environment: `OTTLA_LOG_SEGMENT_BYTES=1048576`;
3. the file of `--config`: `server.properties` as Apache Kafka's, or TOML when its name ends in `.toml`
   (`log.segment.bytes = 1048576`, or `segment.bytes = 1048576` below `[log]`);
4. the default.

A topic's own value (`ottla topic create --config segment.bytes=1048576`, or any Kafka tool) wins over the broker's.
Broker settings are read at the start; topic settings may change at any time.

A name that nobody knows is warned about, with the nearest that exists. A name that Apache Kafka knows and Ottla does
not use is noted once and has no effect; `ssl.*`, `sasl.*`, `authorizer.*` and so on are warned about, because whoever
set them wanted a guard that is not there yet. A value that cannot be used stops the start; the error says what can.

A broker listens on loopback unless it is told otherwise, and another address is refused without `--insecure-listen`.
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [_HEAD, "## Broker settings\n"]
    for heading, settings in BROKER_SETTING_GROUPS.items():
        parts.append(f"### {heading}\n")
        parts.append(_table(_COLUMNS, map(_broker_row, settings)))
    honoured = [setting for setting in TOPIC_SETTINGS.values() if setting.honoured]
    stored = [setting for setting in TOPIC_SETTINGS.values() if not setting.honoured]
    parts.append("## Topic settings\n")
    parts.append(
        _table(["setting", "type", "default", "accepted", "broker's setting", "meaning"], map(_topic_row, honoured))
    )
    parts.append(
        "## Topic settings without effect\n\nKept with the topic and shown to admin tools, because Kafka's tools and "
        "clients set them as a matter of course.\n"
    )
    parts.append(_table(_COLUMNS, map(_broker_row, stored)))
    parts.append(
        "## Settings of single consumer groups\n\nA group's own value (`kafka-configs --entity-type groups`, or any "
        "admin client) wins over the broker's, within the broker's bounds; a session must outlast the interval.\n"
    )
    parts.append(
        _table(
            ["setting", "type", "default", "accepted", "broker's setting", "bounds", "meaning"],
            map(_group_row, GROUP_SETTINGS.values()),
        )
    )
    return "\n".join(parts)


def _broker_row(setting: AnySetting) -> list[str]:
    names = f"`{setting.name}`" + "".join(f" (older: `{alias}`)" for alias in setting.aliases)
    return [names, setting.type.name.lower(), _default(setting), _accepted(setting), setting.about]


def _topic_row(setting: AnySetting) -> list[str]:
    synonyms = ", ".join(f"`{synonym.setting.name}`" for synonym in SYNONYMS[setting.name])
    name, kind, default, accepted, about = _broker_row(setting)
    return [name, kind, default, accepted, synonyms, about]


def _group_row(setting: AnySetting) -> list[str]:
    inherited, lowest, highest = BOUNDS[setting.name]
    name, kind, default, accepted, about = _broker_row(setting)
    return [name, kind, default, accepted, f"`{inherited.name}`", f"`{lowest.name}`, `{highest.name}`", about]


def _default(setting: AnySetting) -> str:
    shown = setting.format(setting.default)
    if shown is None:
        return "unset"
    return f"`{shown}`" if shown else "empty"


def _accepted(setting: AnySetting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.minimum is None:
        return ""
    return f"at least {setting.minimum}" if setting.maximum is None else f"{setting.minimum} to {setting.maximum}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
