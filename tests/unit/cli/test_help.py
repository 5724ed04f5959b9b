"""Each verb's help shows how it is called, in full lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from ottla.cli.program import program
from tests.unit.cli.every_verb import every_verb

VERBS = dict(every_verb())
# How the rest of a shell's line starts.
_AFTER = re.compile(r" (?:\||&&|>) ")


def _help_of(path: str) -> str:
    """As a terminal of 80 columns shows it."""
    command: click.Command = program
    context = click.Context(program, info_name="ottla", terminal_width=80)
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context, terminal_width=80)
    return command.get_help(context)


def _examples_of(path: str) -> Iterator[list[str]]:
    """The arguments of each line of a verb's help that calls it, as `ottla load run` may be called without `run`."""
    text = (VERBS[path].help or "").replace("\b", "")
    for line in text.splitlines():
        for part in _AFTER.split(line.strip()):
            start = path if path != "load run" or part.startswith("ottla load run ") else "load"
            if part.startswith(f"ottla {start} "):
                yield shlex.split(part)[1 + len(start.split()) :]


def _takes_arguments(command: click.Command) -> bool:
    return any(isinstance(each, click.Argument) or each.required for each in command.params)


@pytest.mark.parametrize("path", [path for path, command in VERBS.items() if _takes_arguments(command)])
def test_verb_that_takes_arguments_has_an_example(path: str) -> None:
    assert list(_examples_of(path)) or f"ottla {path}" in (VERBS[path].help or "")


@pytest.mark.parametrize("path", VERBS)
def test_examples_have_arguments_that_the_verb_takes(path: str) -> None:
    command = VERBS[path]
    for arguments in _examples_of(path):
        context = click.Context(command)
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        assert rest == [], arguments


def _families(path: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _families(f"{path} {name}".strip(), below)


@pytest.mark.parametrize("path", list(_families("", program)))
def test_help_of_a_family_has_each_verb_with_its_whole_sentence(path: str) -> None:
    shown = _help_of(path)
    assert "Verbs:" in shown
    assert "VERB ..." in shown
    assert not re.search(r"\w\.\.\.$", shown.partition("Verbs:")[2], re.MULTILINE)
