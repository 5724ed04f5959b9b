"""A verb that has verbs: how its help lists them, and what a wrong one gets."""

from __future__ import annotations

from typing import Any, Final

import click

from ottla.model.nearest import nearest_name

VERB_METAVAR: Final = "VERB ..."
# Longer than any first sentence: click cuts one that is longer.
_SENTENCE_CHARS_MAX: Final = 1_000


class VerbGroup(click.Group):
    """Its help has the first sentence of each verb in full, on as many lines as it takes."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings.setdefault("subcommand_metavar", VERB_METAVAR)
        super().__init__(*arguments, **settings)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(self.abouts(ctx))

    def abouts(self, ctx: click.Context) -> list[tuple[str, str]]:
        """The name of each verb and what it does."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, each.get_short_help_str(_SENTENCE_CHARS_MAX)) for name, each in commands if each is not None]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            nearest = nearest_name(name, self.list_commands(ctx)) or self._swapped(ctx, args)
            ending = "" if nearest is None else f"  Did you mean {nearest}?"
            raise click.UsageError(f"There is no verb {name!r}.{ending}", ctx)
        return super().resolve_command(ctx, args)

    def _swapped(self, ctx: click.Context, args: list[str]) -> str | None:
        """`topic list` for `list topics`."""
        family_name = nearest_name(args[1], self.list_commands(ctx)) if len(args) > 1 else None
        family = None if family_name is None else self.get_command(ctx, family_name)
        if isinstance(family, click.Group) and args[0] in family.list_commands(ctx):
            return f"{family_name} {args[0]}"
        return None
