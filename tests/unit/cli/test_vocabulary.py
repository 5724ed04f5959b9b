"""One vocabulary of flags, over all verbs; docs/command-line.md has the table of the words for values."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from ottla.cli.client_flags import DURATION, RenamedOption
from ottla.cli.program import program
from tests.unit.cli.every_verb import every_verb

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = ROOT / "docs" / "command-line.md"
# A flag that has values of several kinds, and why.
OF_SEVERAL_KINDS: Final = {
    "--allow-host": "addresses of clients in access rules, as in Kafka's tool; names of the registry's own host",
    "--config": "a broker's file, a pipeline's file, and a topic's setting, as in Kafka's tool",
    "--key": "of a record, of a table, of rows in it",
    "--listen": "with the protocols that the server has",
    "--start": "mirrors cannot start at a time",
    "--state": "a flag of `group describe`, as in Kafka's tool",
    "--table": "a name in a catalog, and the place of a table",
    "--target": "a lake, and a cluster",
    "--topic": "with partitions where they can be named",
    "--zookeeper": "`cluster up` has one of its own, or none",
}
TIME_FLAGS: Final = {"--since", "--until", "--to-datetime"}
# Data and messages are mixed in their output on purpose: records in lines.
RECORD_VERBS: Final = {"consume", "produce"}
_WORD: Final = re.compile(r"[\[\]|]|\.\.\.|(?<=[A-Z]),|(?<=[A-Z])/")
_PLAIN_UNITS: Final = ("-s", "-seconds", "-minutes", "-hours", "-days")


def shown_options() -> Iterator[tuple[str, click.Option]]:
    for path, command in every_verb():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                yield path, parameter


def kind_of(parameter: click.Parameter) -> str:
    """The word for its value; empty without a value, or where help lists the choices."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return ""
    return "" if isinstance(parameter.type, click.Choice) else parameter.metavar or "(none)"


def words_of(metavar: str) -> set[str]:
    """`[https://]HOST:PORT,...` has the words https:// and HOST:PORT."""
    return {word for part in _WORD.split(metavar) for word in _parts(part.lstrip("/").strip(" ,")) if word}


def _parts(text: str) -> list[str]:
    if text in {"HOST:PORT", "User:NAME", "KEY=VALUE", "0,1", ":0,1"} or "://" in text:
        return [text.removeprefix(":")]
    return re.split(r"[:=]| -- |-- ", text)


def test_every_value_has_a_word_of_the_table_and_every_word_of_it_is_used() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| value |")[2].partition("\n\n")[0]
    documented = {word for row in table.splitlines()[2:] for word in re.findall(r"`([^`]+)`", row.split("|")[1])}
    metavars = {kind_of(each) for _, command in every_verb() for each in command.params if not _is_hidden(each)}
    used = {word for metavar in metavars for word in words_of(metavar)}
    assert used - documented == set()
    assert documented - used == set()


def _is_hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


def test_flag_has_values_of_one_kind_in_all_verbs() -> None:
    kinds: dict[str, set[str]] = defaultdict(set)
    for _, option in shown_options():
        for name in option.opts:
            kinds[name].add(kind_of(option))
    assert {name for name, found in kinds.items() if len(found) > 1} == set(OF_SEVERAL_KINDS)


def test_unit_of_a_flag_is_in_its_name_or_in_its_value() -> None:
    for path, option in shown_options():
        kind, name = kind_of(option), option.opts[0]
        assert not name.endswith(_PLAIN_UNITS), f"{path} {name}: take a {DURATION}"
        assert kind != DURATION or not name.endswith("-ms"), f"{path} {name}"
        assert not name.endswith("-ms") or kind == "MS", f"{path} {name}"
        assert not name.endswith("-bytes") or kind == "BYTES", f"{path} {name}"
        assert kind != "TIME" or name in TIME_FLAGS, f"{path} {name}: a moment is --since or --until"


def test_verb_that_shows_data_offers_all_formats() -> None:
    for path, command in every_verb():
        names = {name for parameter in command.params for name in parameter.opts}
        if "--json" in names and path not in RECORD_VERBS:
            assert {"--output", "-o"} <= names, path
        assert "--output" not in names or "--json" in names, f"{path}: --output means the format, in every verb"


@pytest.mark.parametrize(
    ("path", "former", "present"),
    [
        ("load backfill", "--from", "--since"),
        ("load backfill", "--to", "--until"),
        ("audit wait", "--from", "--since"),
        ("audit lost-offsets", "--ledger-topic", "--lost-offsets-topic"),
        ("secure token", "--output", "--token-file"),
    ],
)
def test_flag_is_accepted_by_its_former_name_which_help_does_not_show(path: str, former: str, present: str) -> None:
    command = dict(every_verb())[path]
    option = next(each for each in command.params if present in each.opts)
    assert isinstance(option, RenamedOption)
    assert option.name is not None
    context = click.Context(command, info_name=path)
    assert f"{former} " not in command.get_help(context)
    values, _, _ = command.make_parser(context).parse_args([former, "x"])
    assert values[option.name] == "x"


@pytest.mark.parametrize(
    ("path", "former"),
    [
        ("load vacuum", "--older-than-hours"),
        ("transaction list", "--open-for-ms"),
        ("transaction abort", "--max-timeout-minutes"),
        ("transaction find-hanging", "--max-timeout-minutes"),
    ],
)
def test_flag_with_a_former_unit_is_hidden(path: str, former: str) -> None:
    command = dict(every_verb())[path]
    (option,) = [each for each in command.params if former in each.opts]
    assert isinstance(option, click.Option)
    assert option.hidden


def test_help_breaks_no_line_within_a_word() -> None:
    for path, command in every_verb():
        for width in (60, 80):
            context = click.Context(command, info_name=f"ottla {path}", terminal_width=width, max_content_width=width)
            for line in command.get_help(context).splitlines():
                assert not re.search(r"\w-$", line), f"{path}: {line}"
    assert "\u2011" not in program.get_help(click.Context(program))


def headings(source: str) -> Iterator[str]:
    """The texts of the heads of tables: lists of texts in capitals."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            texts = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if texts and texts[0].isupper() and all(text.upper() == text for text in texts):
                yield from texts


def test_headings_of_tables_have_no_blanks() -> None:
    """But Kafka's own."""
    found = {
        heading
        for path in sorted((ROOT / "src" / "ottla" / "cli").rglob("*.py"))
        for heading in headings(path.read_text(encoding="utf-8"))
    }
    assert {"GROUP", "START-OFFSET", "IN-SYNC"} <= found
    assert {heading for heading in found if " " in heading} == {"COORDINATOR (ID)"}
