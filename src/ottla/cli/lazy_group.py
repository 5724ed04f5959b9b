"""A click group that imports a verb's module only when the verb is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click

from ottla.cli.imports import ended_by_ctrl_c
from ottla.cli.verbs import Verb
from ottla.model.nearest import nearest_name


class LazyGroup(click.Group):
    """Verbs from a table.  Help needs only the table."""

    def __init__(self, name: str, verbs: Mapping[str, Verb], **settings: object) -> None:
        super().__init__(name, **settings)  # type: ignore[arg-type]
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        with ended_by_ctrl_c():
            command = import_module(verb.module).command
        assert isinstance(command, click.Command), f"{verb.module}.command is not a click command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self._verbs:
            nearest = nearest_name(name, self._verbs)
            ending = "" if nearest is None else f"  Did you mean {nearest}?"
            raise click.UsageError(f"There is no verb {name!r}.{ending}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.about) for name, verb in self._verbs.items()])
