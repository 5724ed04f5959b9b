"""`ottla secure init`: what a broker needs to listen beyond loopback, in one folder."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import say
from ottla.model.errors import ConfigError
from ottla.runtime.secret_file import write_secret_file

if TYPE_CHECKING:
    from ottla.security.issuing import Issued

_PASSWORD_BYTES: Final = 16
_ADMIN: Final = "admin"


@click.command(name="init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name or IP address by which clients reach the broker; repeatable.  [default: this machine's name]",
)
@click.option("--port", type=click.IntRange(1, 65_535), default=9093, show_default=True)
def command(folder: Path, hosts: tuple[str, ...], port: int) -> None:
    """Make a CA, a certificate, an admin user and the files of broker and clients in FOLDER.

    FOLDER must be empty or new.  The password of the user is only in its files, which only their owner can read.
    """
    from ottla.runtime.clock import SystemClock
    from ottla.runtime.installed import TOKENS, require_modules
    from ottla.runtime.names import host_name

    require_modules("ottla secure init", TOKENS[1:], "security")
    from ottla.security.issuing import issue

    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", hint="name a new folder: nothing is overwritten")
    names = list(dict.fromkeys(hosts or (host_name(),)))
    now_ms = SystemClock().now_ms()
    issued = issue(list(dict.fromkeys([*names, "localhost", "127.0.0.1"])), datetime.fromtimestamp(now_ms / 1_000, UTC))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    _write_all(folder, issued, names, port)
    say(
        f"{folder}: a CA and a certificate for {', '.join(names)}, valid for a year, and the user {_ADMIN}",
        f"start the broker: ottla serve --config {folder / 'server.properties'}",
        f"connect a client: --command-config {folder / 'client.properties'}",
        f"add users: ottla user add NAME -b {names[0]}:{port} --command-config {folder / 'client.properties'}",
        f"keep {folder / 'ca.key'} away from the broker: it makes certificates that clients trust",
    )


def _write_all(folder: Path, issued: Issued, names: Sequence[str], port: int) -> None:
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    files = {
        "ca.pem": issued.authority,
        "ca.key": issued.authority_key,
        "broker.pem": issued.broker,
        "users": f"{_ADMIN}={password}\n",
        "server.properties": "\n".join(
            [
                f"listeners=SASL_SSL://0.0.0.0:{port}",
                f"advertised.listeners=SASL_SSL://{names[0]}:{port}",
                f"ssl.keystore.location={folder / 'broker.pem'}",
                "sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
                f"sasl.plain.users.file={folder / 'users'}",
                "",
            ]
        ),
        "client.properties": "\n".join(
            [
                "security.protocol=SASL_SSL",
                "sasl.mechanism=PLAIN",
                "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{_ADMIN}" password="{password}";',
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={folder / 'ca.pem'}",
                "",
            ]
        ),
    }
    for name, text in files.items():
        write_secret_file(folder / name, text)
