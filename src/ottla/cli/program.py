"""The program: verbs, and the output of each kind of failure.

0 done, 1 failed (`error:` and `hint:` on standard error), 2 called wrongly, 130 interrupted.  Standard output holds
data only, so that verbs work in pipes.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

import click

from ottla import __version__
from ottla.cli.exit_status import CALLED_WRONGLY, FAILED, INTERRUPTED, PIPE_CLOSED
from ottla.cli.lazy_group import LazyGroup
from ottla.cli.output import say, say_error
from ottla.cli.verbs import VERBS
from ottla.model.errors import OttlaError

# Click's wording, by the name of its type.
_NO_INTEGER: Final = re.compile(r"is not a valid integer( range)?(?=\.$)")

program: Final = LazyGroup(
    "ottla",
    VERBS,
    help="Ottla: a Kafka broker and the pipeline around it.",
    epilog="`ottla VERB --help` describes a verb.",
    no_args_is_help=True,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
program.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=lambda ctx, _option, asked: _show_version(ctx) if asked else None,
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
        return _fail(str(error), hint=error.hint)
    except BrokenPipeError:
        return _leave_closed_pipe()
    except UnicodeEncodeError as error:
        # An argument that is not UTF-8; Python has it with lone surrogates.
        return _fail(f"not UTF-8, so it cannot be sent: {error.object}", hint="is the terminal's encoding UTF-8?")
    except OSError as error:
        if error.errno == errno.EBADF and error.filename is None:
            _let_go_of_output()
            return _fail("standard input or output is closed", hint="</dev/null and >/dev/null stand for nothing")
        what = error.strerror or str(error)
        return _fail(f"{error.filename}: {what}" if error.filename else what, hint=None)
    return status if isinstance(status, int) else 0


def _fail(message: str, *, hint: str | None) -> int:
    say_error(message, hint)
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
