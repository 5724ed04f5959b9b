"""`ottla user`: the users that log in by SCRAM."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import bootstrap_flag, open_cluster, output_flag
from ottla.cli.output import data_lines, say, table
from ottla.cli.verb_group import VerbGroup
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from ottla.security.secret import Secret

_CLIENT_ID: Final = "ottla-user"
_PASSWORD_VARIABLE: Final = "OTTLA_USER_PASSWORD"
_PASSWORD_BYTES_MAX: Final = 4_096
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@click.group(name="user", cls=VerbGroup)
def command() -> None:
    """Set, delete and list the users that log in by SCRAM."""


@command.command()
@click.argument("name", metavar="NAME")
@bootstrap_flag
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Read the password from the first line of FILE, of standard input with -.  [default: {_PASSWORD_VARIABLE}, "
    "else it is asked for at the terminal]",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS, case_sensitive=False),
    multiple=True,
    default=_MECHANISMS,
    help="Repeatable.  [default: both]",
)
@click.option("--iterations", type=int, metavar="N", help="4096 to 16384.  [default: 8192]")
def add(
    name: str, bootstrap: str, password_file: Path | None, mechanisms: tuple[str, ...], iterations: int | None
) -> None:
    """Let NAME log in; one that exists gets the new password.

    \b
    ottla user add alice --password-file alice.password

    The password is never an argument: every user of the machine can read those.
    """
    from ottla.client.admin.access import DEFAULT_ITERATIONS, set_password
    from ottla.security.mechanism import SaslMechanism

    password = _password(name, password_file)
    wanted = [SaslMechanism.parse(each) for each in dict.fromkeys(mechanisms)]
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        set_password(cluster, name, password, wanted, DEFAULT_ITERATIONS if iterations is None else iterations)
    say(f"user {name} can log in by {' and '.join(wanted)}")


@command.command()
@click.argument("name", metavar="NAME")
@bootstrap_flag
def delete(name: str, bootstrap: str) -> None:
    """Let NAME log in no longer.

    \b
    ottla user delete alice

    Its connections stay until they end; `connections.max.reauth.ms` bounds that.
    """
    from ottla.client.admin.access import delete_user

    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        delete_user(cluster, name)
    say(f"deleted user {name}")


@command.command(name="list")
@bootstrap_flag
@output_flag("One object for each mechanism of a user.")
def list_users(bootstrap: str, as_data: bool) -> None:
    """List the users, with their mechanisms and iterations."""
    from ottla.client.admin.access import describe_users

    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        found = describe_users(cluster)
    rows = [(name, each.mechanism, each.iterations) for name, those in sorted(found.items()) for each in those]
    if as_data:
        for row in rows:
            say(*data_lines(dict(zip(("user", "mechanism", "iterations"), row, strict=True))))
        return
    say(*table(("USER", "MECHANISM", "ITERATIONS"), rows))


def _password(name: str, file: Path | None) -> Secret:
    from ottla.security.secret import Secret

    if file is not None:
        text = _first_line(file)
    elif _PASSWORD_VARIABLE in os.environ:
        text = os.environ[_PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        text = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise ConfigError(
            "there is no terminal at which a password could be entered",
            hint=f"use --password-file FILE, --password-file - for standard input, or {_PASSWORD_VARIABLE}",
        )
    if not text:
        raise ConfigError("the password is empty")
    return Secret(text)


def _first_line(file: Path) -> str:
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.readline(_PASSWORD_BYTES_MAX)
        else:
            with file.open("rb") as opened:
                data = opened.readline(_PASSWORD_BYTES_MAX)
        return data.decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"--password-file: cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--password-file: {file} is not UTF-8") from None
