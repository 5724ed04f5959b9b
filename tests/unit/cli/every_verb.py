"""All verbs of the command, as their tests walk over them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import click

from ottla.cli.program import program


@cache
def every_verb() -> tuple[tuple[str, click.Command], ...]:
    """Each with its path: `topic create`."""
    return tuple(_verbs("", program))


def _verbs(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _verbs(f"{path} {name}".strip(), below)
