"""The pages for readers who choose, or who come from Apache Kafka, name settings, verbs and classes that there are."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Final

import click
import pytest

import ottla
from ottla.cli.verbs import VERBS, Family, Verb
from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.dynamic_broker_settings import DYNAMIC_BROKER_SETTINGS
from ottla.model.group_settings import GROUP_SETTINGS
from ottla.model.setting_sources import IGNORED_KAFKA_KEYS
from ottla.model.topic_settings import TOPIC_SETTINGS
from tests.architecture.source_tree import ROOT

DOCS: Final = ROOT / "docs"
FROM_KAFKA: Final = DOCS / "from-apache-kafka.md"
CHOOSING: Final = DOCS / "choosing.md"
_CODE: Final = re.compile(r"`([^`]+)`")
_SETTING: Final = re.compile(r"[a-z]+(?:\.[a-z]+)+")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _first_cells(text: str, heading: str) -> list[str]:
    """The names of code in the first column of the table below a heading."""
    part = text.partition(f"{heading}\n")[2].partition("\n#")[0]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in _CODE.findall(row.split("|")[1])]


def test_settings_beside_those_of_apache_kafka_are_what_the_tables_say() -> None:
    page = _read(FROM_KAFKA)
    names = {alias for setting in BROKER_SETTINGS.values() for alias in (setting.name, *setting.aliases)}
    used, unused, own = (
        _first_cells(page, heading) for heading in ("## server.properties", "### Without effect", "### Only here")
    )
    assert len(used) > 30
    assert {name for name in used if name not in names} == set()
    assert {name for name in unused if name not in IGNORED_KAFKA_KEYS} == set()
    assert own
    assert {name for name in own if name not in names} == set()


def test_every_setting_that_the_page_names_exists() -> None:
    known = {
        name for table in (BROKER_SETTINGS, DYNAMIC_BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS) for name in table
    }
    known |= {alias for setting in BROKER_SETTINGS.values() for alias in setting.aliases} | IGNORED_KAFKA_KEYS
    spans = [span for path in (FROM_KAFKA, CHOOSING) for span in _CODE.findall(_read(path))]
    named = {name for span in spans for name in _SETTING.findall(span.partition("=")[0]) if span.startswith(name)}
    others = {name for name in named if name.startswith("ottla.") or name in {"server.properties", "client.properties"}}
    assert len(named - others) > 40
    assert named - others - known == set()


def _command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and what follows; raises KeyError where there is none."""
    entry: Verb | Family = VERBS[words[0]]
    rest = words[1:]
    while isinstance(entry, Family):
        entry, rest = entry.verbs[rest[0]], rest[1:]
    command = getattr(import_module(entry.module), entry.command)
    assert isinstance(command, click.Command)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest[0]) if rest else None
        if found is None:
            raise KeyError(words)
        command, rest = found, rest[1:]
    return command, rest


def _wrong(span: str) -> bool:
    """Whether no verb takes these words and flags."""
    try:
        command, rest = _command(shlex.split(span)[1:])
        command.make_parser(click.Context(command)).parse_args(rest)
    except (KeyError, IndexError, click.UsageError):
        return True
    return False


@pytest.mark.parametrize("page", [FROM_KAFKA, CHOOSING], ids=lambda page: str(page.name))
def test_verbs_of_the_page_exist_with_their_flags(page: Path) -> None:
    spans = [span for span in _CODE.findall(_read(page)) if span.startswith("ottla ")]
    assert len(spans) > 10
    assert [span for span in spans if _wrong(span)] == []


def test_verb_or_flag_that_is_not_there_is_found() -> None:
    for span in ("ottla topics list", "ottla topic lists", "ottla topic list --al", "ottla cluster", "ottla group"):
        assert _wrong(span)
    assert not _wrong("ottla topic create t --partitions 3")


@pytest.mark.parametrize("page", [FROM_KAFKA, CHOOSING], ids=lambda page: str(page.name))
def test_classes_that_the_page_names_are_public(page: Path) -> None:
    names = set(re.findall(r"`ottla\.([A-Z]\w+)`", _read(page)))
    assert len(names) > 3
    assert names - set(ottla.__all__) == set()
