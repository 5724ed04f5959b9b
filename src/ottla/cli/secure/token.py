"""`ottla secure token`: what another broker needs to join a secured cluster, in one sealed text."""

from __future__ import annotations

import ipaddress
import re
import secrets
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import DURATION, RenamedOption, duration_ms
from ottla.cli.config_file import CONFIG_FILE_BYTES_MAX, file_settings, read_config_file
from ottla.cli.output import say
from ottla.model.errors import ConfigError
from ottla.model.limits import DAY_MS, MINUTE_MS
from ottla.observe.events import start_logging
from ottla.runtime.secret_file import read_secret_text, write_secret_file
from ottla.runtime.text_file import read_text_file

if TYPE_CHECKING:
    from ottla.security.member_settings import MemberSettings

_PASSWORD_BYTES: Final = 16
_PEM_HINT: Final = "is it a PEM file?"
_VALID_MAX_MS: Final = 30 * DAY_MS
_HOST_LENGTH_MAX: Final = 253
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


@click.command(name="token")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--host", required=True, metavar="HOST", help="The name or IP address by which others reach the broker.")
@click.option("--node-id", type=click.IntRange(0), metavar="ID", help="Its node.id.  [default: `secure join` names it]")
@click.option("--valid-for", default="1h", show_default=True, metavar=DURATION, help="30m, 1h, 2d: at most 30d.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings of a broker of the cluster.  [default: DIR/server.properties]",
)
@click.option(
    "--cluster-id",
    metavar="ID",
    help="Of the cluster, where ZooKeeper cannot be reached.  [default: read from ZooKeeper]",
)
@click.option(
    "--token-file",
    "output",
    cls=RenamedOption,
    formerly=("--output",),
    metavar="FILE",
    help="The token; - for standard output.  [default: HOST.token]",
)
@click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the passphrase there.  [default: it is shown]",
)
def command(
    folder: Path,
    host: str,
    node_id: int | None,
    valid_for: str,
    config: Path | None,
    cluster_id: str | None,
    output: str | None,
    passphrase_file: Path | None,
) -> None:
    """Make a token by which the broker on a host joins the secured cluster, by the CA in DIR: ca.pem and ca.key.

    \b
    ottla secure token /etc/ottla --host kafka2.example.org

    It holds a certificate for the host, its own user or the cluster's login, the access to ZooKeeper and the settings
    of a broker.  A passphrase opens it, which is shown once: send it another way.
    """
    from ottla.runtime.clock import SystemClock
    from ottla.runtime.installed import TOKENS, require_modules

    start_logging("WARNING")
    require_modules("ottla secure token", TOKENS[1:], "security")
    from ottla.security.issuing import issue_certificate
    from ottla.security.join_token import NONCE_BYTES, PASSPHRASE_BYTES, JoinToken, TokenHead, passphrase_of
    from ottla.security.member_settings import PASSWORD_FILE, SERVER_PROPERTIES, member_settings

    _require_host(host)
    now_ms = SystemClock().now_ms()
    # The head has whole seconds.
    expires_ms = (now_ms + _valid_for_ms(valid_for)) // 1_000 * 1_000
    config = config or folder / SERVER_PROPERTIES
    member = member_settings([(raw.name, raw.text) for raw in read_config_file(config)], host)
    keystore = issue_certificate(
        read_text_file(folder / "ca.pem", CONFIG_FILE_BYTES_MAX, _PEM_HINT),
        read_secret_text(str(folder / "ca.key"), "ca.key", CONFIG_FILE_BYTES_MAX),
        list(dict.fromkeys([host, "localhost", "127.0.0.1"])),
        datetime.fromtimestamp(now_ms / 1_000, UTC),
    )
    files = {**_contents(member), **dict.fromkeys(member.keystores, keystore)}
    if member.user is not None:
        files[PASSWORD_FILE] = f"{secrets.token_urlsafe(_PASSWORD_BYTES)}\n"
    head = TokenHead(cluster_id or _cluster_id(config), host, expires_ms)
    token = JoinToken(head, node_id, member.settings, files, member.user, member.principal)
    passphrase = passphrase_of(secrets.token_bytes(PASSPHRASE_BYTES))
    text = token.sealed(passphrase, secrets.token_bytes(NONCE_BYTES))
    path = Path(output or f"{host}.token")
    with ExitStack() as undoing:
        if passphrase_file is not None:
            _write_new(passphrase_file, f"{passphrase.reveal()}\n")
            undoing.callback(passphrase_file.unlink)
        if output == "-":
            say(*text.splitlines())
        else:
            _write_new(path, text)
            say(f"{path}: a token for {host}, valid until {head.expires_text}", err=True)
        undoing.pop_all()
    if passphrase_file is None:
        say(f"passphrase, shown only here: {passphrase.reveal()}", err=True)
    if member.left_out:
        say(f"not in it, to be set on {host}: {', '.join(member.left_out)}", err=True)
    say(f"on {host}: ottla secure join {'TOKEN_FILE' if output == '-' else path.name} DIR", err=True)


def _require_host(host: str) -> None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host) or len(host) > _HOST_LENGTH_MAX:
            raise ConfigError(f"--host {host!r} is not a host name or an IP address") from None
        return
    if address.is_unspecified or address.is_multicast:
        raise ConfigError(
            f"--host {host} is not the address of one machine", hint="name the one that others connect to"
        )


def _valid_for_ms(text: str) -> int:
    found = duration_ms(text, "--valid-for")
    if not MINUTE_MS <= found <= _VALID_MAX_MS:
        raise ConfigError(f"--valid-for {text} is not between 1m and 30d", hint="a token is made when it is needed")
    return found


def _contents(member: MemberSettings) -> dict[str, str]:
    return {
        name: read_text_file(Path(path), CONFIG_FILE_BYTES_MAX, f"{name} names it")
        for name, path in member.files.items()
    }


def _cluster_id(config: Path) -> str:
    from ottla.broker.tree.joined_cluster import read_cluster_id
    from ottla.runtime.event_loop import run

    return run(read_cluster_id(file_settings(config)))


def _write_new(path: Path, text: str) -> None:
    try:
        write_secret_file(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", hint="name a new file") from None
