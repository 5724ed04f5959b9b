"""The program: verbs, and the output of each kind of failure.

0 done, 1 failed (`error:` and `hint:` on standard error), 2 called wrongly, 130 interrupted.  Standard output holds
data only, so that verbs work in pipes.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import click

from ottla import __version__
from ottla.cli.exit_status import CALLED_WRONGLY, FAILED, INTERRUPTED, PIPE_CLOSED
from ottla.cli.output import say, say_error
from ottla.cli.verb_group import VerbGroup
from ottla.cli.verbs import VERBS, Family, Verb
from ottla.model.errors import OttlaError, details_of

# A hyphen at which no line is broken.
_NO_BREAK: Final = "\u2011"


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process by the signal, at once: nothing has been started yet that must be cleaned up.

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


class UnbrokenHelp(click.HelpFormatter):
    """Lines end between words: not within `--transactional-id`, which could not be copied then."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _NO_BREAK))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, text.replace("-", _NO_BREAK)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_NO_BREAK, "-")


# All help of this process is that of the program.
click.Context.formatter_class = UnbrokenHelp


class LazyGroup(VerbGroup):
    """Verbs from a table.  Help needs only the table."""

    def __init__(self, name: str, verbs: Mapping[str, Verb | Family], **settings: object) -> None:
        super().__init__(name, **settings)
        self._verbs = verbs

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OttlaError as error:
            from ottla.cli.client_flags import add_origin

            add_origin(ctx, error)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self._verb(cmd_name)
        return None if verb is None else command_of(cmd_name, verb)

    def _verb(self, name: str) -> Verb | Family | None:
        former = (verb for verb in self._verbs.values() if isinstance(verb, Verb) and verb.formerly == name)
        return self._verbs.get(name) or next(former, None)

    def abouts(self, ctx: click.Context) -> list[tuple[str, str]]:
        return [(name, verb.about) for name, verb in self._verbs.items()]


def command_of(name: str, verb: Verb | Family) -> click.Command:
    """The command of a line of a table."""
    if isinstance(verb, Family):
        return LazyGroup(name, verb.verbs, help=verb.about, no_args_is_help=True)
    with ended_by_ctrl_c():
        command = getattr(import_module(verb.module), verb.command)
    gc.enable()
    assert isinstance(command, click.Command), f"{verb.module}.{verb.command} is not a click command"
    return command


# Click's wording, by the name of its type.
_NO_INTEGER: Final = re.compile(r"is not a valid integer( range)?(?=\.$)")

program: Final = LazyGroup(
    "ottla",
    VERBS,
    help="Ottla: a Kafka broker and the pipeline around it.",
    epilog="`ottla VERB --help` describes a verb.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
program.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=lambda ctx, _option, is_given: _show_version(ctx) if is_given else None,
        help="Show the version and exit.",
    )
)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status.  Prints errors for the user; raises only our own bugs."""
    if not __debug__:
        return _fail("Ottla needs its assertions", hint="start Python without -O and PYTHONOPTIMIZE")
    try:
        status = program.main(args=list(arguments), prog_name="ottla", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return CALLED_WRONGLY
    except click.UsageError as error:
        return _fail_usage(error, arguments)
    except click.ClickException as error:
        return _fail(error.format_message(), hint=None)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OttlaError as error:
        # Errors for users of Spark have the hint in their text, too.
        message = str(error).removesuffix(f"; {error.hint}")
        return _fail(message, hint=error.hint, details=details_of(error))
    except BrokenPipeError:
        return _leave_closed_pipe()
    except UnicodeEncodeError as error:
        # An argument that is not UTF-8; Python has it with lone surrogates.
        return _fail(f"not UTF-8, so it cannot be sent: {error.object}", hint="is the terminal's encoding UTF-8?")
    except OSError as error:
        if error.errno == errno.EBADF and error.filename is None:
            _let_go_of_output()
            return _fail(
                "standard input or output is closed", hint="for no input and no output use </dev/null and >/dev/null"
            )
        what = error.strerror or str(error)
        return _fail(f"{error.filename}: {what}" if error.filename else what, hint=None)
    return status if isinstance(status, int) else 0


def _fail(message: str, *, hint: str | None, details: Iterable[str] = ()) -> int:
    say_error(message, hint, details)
    return FAILED


def _fail_usage(error: click.UsageError, arguments: Sequence[str]) -> int:
    path = _path_of_verb(arguments) if error.ctx is None else error.ctx.command_path
    message = error.format_message()
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, type(click.INT)):
        message = _NO_INTEGER.sub("is not a whole number", message)
    _fail(message, hint=f"{path} --help shows its usage")
    return CALLED_WRONGLY


def _path_of_verb(arguments: Sequence[str]) -> str:
    """Click does not say in which command an option lacks its argument."""
    command: click.Command | None = program
    path = ["ottla"]
    for argument in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), argument)
        if command is None:
            break
        path.append(argument)
    return " ".join(path)


def _leave_closed_pipe() -> int:
    """The reader of our output has closed the pipe (`| head`): no error."""
    _let_go_of_output()
    return PIPE_CLOSED


def _let_go_of_output() -> None:
    """What could not be written is forgotten: Python's own last flush would be an error, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(ctx: click.Context) -> None:
    say(f"ottla {__version__}")
    ctx.exit()
