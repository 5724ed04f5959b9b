"""`ottla secure join`: the files of a broker, from a token."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import say
from ottla.model.errors import ConfigError
from ottla.model.properties import property_line
from ottla.observe.events import start_logging
from ottla.runtime.secret_file import read_secret_file, read_secret_text, write_secret_file

if TYPE_CHECKING:
    from ottla.security.join_token import JoinToken, TokenHead
    from ottla.security.secret import Secret

_NODE_ID: Final = "node.id"


@click.command(name="join")
@click.argument("token_file", metavar="TOKEN_FILE")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--node-id", type=click.IntRange(0), metavar="ID", help="Where the token names none.")
@click.option(
    "--host",
    metavar="HOST",
    help="The name in the token, where this machine does not know it: behind a router that translates addresses.",
)
@click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the passphrase there.  [default: it is asked for at the terminal]",
)
def command(token_file: str, folder: Path, node_id: int | None, host: str | None, passphrase_file: Path | None) -> None:
    """Write the keys and settings of a token of `ottla secure token` to DIR, and register the broker's user.

    \b
    ottla secure join kafka2.example.org.token /etc/ottla

    TOKEN_FILE must be readable by its owner only; - is standard input.  DIR must be empty or new.  Afterwards the
    broker starts with DIR/server.properties.
    """
    from ottla.runtime.clock import SystemClock
    from ottla.runtime.installed import TOKENS, require_modules

    start_logging("WARNING")
    require_modules("ottla secure join", TOKENS[1:], "security")
    from ottla.security.join_token import SealedToken
    from ottla.security.member_settings import SERVER_PROPERTIES

    folder = folder.absolute()
    sealed = SealedToken.parse(_token_text(token_file))
    sealed.head.require_time(SystemClock().now_ms())
    _require_host(sealed.head, host)
    _require_empty(folder)
    token = sealed.opened(_passphrase(token_file, passphrase_file))
    config = folder / SERVER_PROPERTIES
    with ExitStack() as undoing:
        _write_all(folder, token, _node_id(token, node_id), undoing)
        _join(config, token)
        undoing.pop_all()
    say(
        f"{folder}: a certificate for {token.head.host}, and the settings of a broker of cluster "
        f"{token.head.cluster_id}",
        f"start the broker: ottla serve --config {config} --data-dir DIR",
        "the token is used, and can be deleted",
    )


def _token_text(token_file: str) -> str:
    from ottla.security.join_token import TOKEN_BYTES_MAX

    if token_file == "-":
        return sys.stdin.buffer.read(TOKEN_BYTES_MAX).decode(errors="replace")
    return read_secret_text(token_file, "the token", TOKEN_BYTES_MAX)


def _require_host(head: TokenHead, host: str | None) -> None:
    from ottla.runtime.host_names import host_name, is_this_machine
    from ottla.security.join_token import TokenRefused

    if host is None and not is_this_machine(head.host):
        raise TokenRefused(
            f"the token is for {head.host}, and this machine is {host_name()}, with none of its addresses",
            hint=f"make a token for this host; if others do reach it as {head.host}, add --host {head.host}",
        )
    if host is not None and host.lower() != head.host.lower():
        raise TokenRefused(f"the token is for {head.host}, not {host}", hint="make a token for this host")


def _require_empty(folder: Path) -> None:
    from ottla.security.member_settings import SERVER_PROPERTIES

    if (folder / SERVER_PROPERTIES).exists():
        raise ConfigError(
            f"{folder} has joined a cluster already",
            hint=f"start its broker: ottla serve --config {folder / SERVER_PROPERTIES}; or name a new folder",
        )
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", hint="name a new folder: nothing is overwritten")


def _passphrase(token_file: str, file: Path | None) -> Secret:
    from ottla.security.secret import Secret

    if file is not None:
        return Secret(read_secret_file(str(file), "--passphrase-file"))
    if token_file != "-" and sys.stdin.isatty():
        return Secret(click.prompt("Passphrase of the token", hide_input=True, err=True))
    raise ConfigError(
        "there is no terminal at which the passphrase could be entered", hint="write it to a file: --passphrase-file"
    )


def _node_id(token: JoinToken, given: int | None) -> int:
    if token.node_id is None and given is None:
        raise ConfigError("the token names no node id", hint="add --node-id N, with an id that no other broker has")
    if None not in (token.node_id, given) and token.node_id != given:
        raise ConfigError(f"the token is for node.id {token.node_id}, not {given}", hint="leave out --node-id")
    found = token.node_id if given is None else given
    assert found is not None
    return found


def _write_all(folder: Path, token: JoinToken, node_id: int, undoing: ExitStack) -> None:
    """`undoing` removes what was written."""
    from ottla.security.member_settings import SERVER_PROPERTIES, file_name

    paths = {name: folder / file_name(name) for name in token.files}
    settings = {_NODE_ID: str(node_id), **token.settings, **{name: str(path) for name, path in paths.items()}}
    texts = {path: token.files[name] for name, path in paths.items()}
    texts[folder / SERVER_PROPERTIES] = "".join(property_line(name, text) for name, text in settings.items())
    try:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True)
            undoing.callback(folder.rmdir)
        folder.chmod(0o700)
        for path, text in texts.items():
            write_secret_file(path, text)
            undoing.callback(path.unlink)
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror or error}", hint="name a new folder") from None


def _join(config: Path, token: JoinToken) -> None:
    from ottla.broker.tree.joined_cluster import join_cluster
    from ottla.cli.config_file import file_settings
    from ottla.runtime.event_loop import run

    run(join_cluster(file_settings(config), token))
