"""A click group that imports a verb's module only when the verb is called."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

import click

from ottla.cli.verbs import Family, Verb
from ottla.model.nearest import nearest_name


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process by the signal, at once: nothing has been started yet that wants cleaning up.

    As an exception it would come up inside other modules' code, which may turn it into another exception, and where
    they execute text Python ends by the signal all the same.  A handler that is not Python's own stays.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class LazyGroup(click.Group):
    """Verbs from a table.  Help needs only the table."""

    def __init__(self, name: str, verbs: Mapping[str, Verb | Family], **settings: object) -> None:
        super().__init__(name, **settings)  # type: ignore[arg-type]
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self._verbs.get(cmd_name)
        return None if verb is None else command_of(cmd_name, verb)

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


def command_of(name: str, verb: Verb | Family) -> click.Command:
    """The command of a line of a table."""
    if isinstance(verb, Family):
        return LazyGroup(name, verb.verbs, help=verb.about, no_args_is_help=True, subcommand_metavar="VERB ...")
    with ended_by_ctrl_c():
        command = getattr(import_module(verb.module), verb.command)
    assert isinstance(command, click.Command), f"{verb.module}.{verb.command} is not a click command"
    return command
