"""`ottla secure init`: what a broker needs to listen beyond loopback, in one folder."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import say
from ottla.model.errors import ConfigError
from ottla.model.listener import PORT_MAX, address_text
from ottla.model.properties import property_line
from ottla.runtime.secret_file import write_secret_file
from ottla.security.member_settings import SERVER_PROPERTIES, user_of

if TYPE_CHECKING:
    from ottla.security.issuing import Issued

_PASSWORD_BYTES: Final = 16
_ADMIN: Final = "admin"
# Of listeners: clients', whose name is their protocol, and that of the brokers.
_CLIENTS: Final = "SASL_SSL"
_BROKERS: Final = "BROKERS"


@click.command(name="init")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A host name or IP address by which clients reach the broker; repeatable.  [default: this machine's name]",
)
@click.option("--port", type=click.IntRange(1, PORT_MAX), metavar="PORT", default=9093, show_default=True)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="Be the first broker of a cluster that shares this ZooKeeper, HOST:PORT,HOST:PORT/CHROOT: by TLS, with an "
    "authorizer, and a listener for brokers alone at the next port.",
)
def command(folder: Path, hosts: tuple[str, ...], port: int, zookeeper: str | None) -> None:
    """Make a CA, a certificate, an admin user and the files of broker and clients in DIR.

    \b
    ottla secure init /etc/ottla --host kafka.example.org

    DIR must be empty or new.  The password of the user is only in its files, which only their owner can read.
    With --zookeeper a certificate for its servers is made, too, and other brokers join with `ottla secure token`.
    """
    from ottla.runtime.clock import SystemClock
    from ottla.runtime.host_names import host_name
    from ottla.runtime.installed import TOKENS, require_modules

    require_modules("ottla secure init", TOKENS[1:], "security")
    from ottla.security.issuing import issue, issue_certificate

    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", hint="name a new folder: nothing is overwritten")
    names = list(dict.fromkeys(hosts or (host_name(),)))
    servers = _servers(zookeeper)
    if zookeeper is not None and port == PORT_MAX:
        raise ConfigError(f"there is no port after {port} for the brokers", hint="choose a lower --port")
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC)
    issued = issue(list(dict.fromkeys([*names, "localhost", "127.0.0.1"])), now)
    files, ports, settings = _files(folder, issued), {_CLIENTS: port}, {}
    if zookeeper is not None:
        files |= _files_of_cluster(issue_certificate(issued.authority, issued.authority_key, servers, now))
        ports[_BROKERS] = port + 1
        settings = _settings_of_cluster(folder, names[0], zookeeper)
    files[SERVER_PROPERTIES] = _properties({**_settings(folder, names[0], ports), **settings})
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, text in files.items():
        write_secret_file(folder / name, text)
    _report(folder, names, port, servers)


def _report(folder: Path, names: Sequence[str], port: int, servers: Sequence[str]) -> None:
    """`servers`: of ZooKeeper, for the first broker of a cluster."""
    client = f"-b {address_text(names[0], port)} --command-config {folder / 'client.properties'}"
    say(f"{folder}: a CA and a certificate for {', '.join(names)}, valid for a year, and the user {_ADMIN}")
    if servers:
        say(
            f"start ZooKeeper with TLS: its key and certificate, for {', '.join(servers)}, is "
            f"{folder / 'zookeeper.pem'}, and {folder / 'ca.pem'} its CA"
        )
    say(f"start the broker: ottla serve --config {folder / SERVER_PROPERTIES}")
    if servers:
        say(
            f"add its user: ottla user add {user_of(names[0])} --password-file {folder / 'broker.password'} {client}",
            f"let others join: ottla secure token {folder} --host NAME --node-id N",
        )
    say(
        f"connect a client: --command-config {folder / 'client.properties'}",
        f"add users: ottla user add NAME {client}",
        f"keep {folder / 'ca.key'} away from the broker: it makes certificates that clients trust",
    )


def _servers(zookeeper: str | None) -> list[str]:
    """The hosts of ZooKeeper's servers.  Raises `ConfigError`."""
    from ottla.coordination.zookeeper.access import ConnectString

    return [] if zookeeper is None else list(dict.fromkeys(host for host, _ in ConnectString.parse(zookeeper).servers))


def _files(folder: Path, issued: Issued) -> dict[str, str]:
    password = _new_password()
    client = {
        "security.protocol": _CLIENTS,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{_ADMIN}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    return {
        "ca.pem": issued.authority,
        "ca.key": issued.authority_key,
        "broker.pem": issued.broker,
        "users": f"{_ADMIN}={password}\n",
        "client.properties": _properties(client),
    }


def _files_of_cluster(certificate: str) -> dict[str, str]:
    return {
        "zookeeper.pem": certificate,
        "zookeeper.digest": f"brokers:{_new_password()}\n",
        "zookeeper.consumers.digest": f"consumers:{_new_password()}\n",
        "broker.password": f"{_new_password()}\n",
    }


def _settings(folder: Path, host: str, ports: Mapping[str, int]) -> dict[str, str]:
    """Of a broker with these listeners."""
    return {
        "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{address_text(host, port)}" for name, port in ports.items()),
        "ssl.keystore.location": str(folder / "broker.pem"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "sasl.plain.users.file": str(folder / "users"),
    }


def _settings_of_cluster(folder: Path, host: str, zookeeper: str) -> dict[str, str]:
    """Of its first broker, beyond those of one that is alone."""
    return {
        "node.id": "1",
        "listener.security.protocol.map": f"{_CLIENTS}:{_CLIENTS},{_BROKERS}:{_CLIENTS}",
        "inter.broker.listener.name": _BROKERS,
        "sasl.inter.broker.username": user_of(host),
        "sasl.inter.broker.password.file": str(folder / "broker.password"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{_ADMIN};User:{user_of(host)}",
        "zookeeper.connect": zookeeper,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(folder / "ca.pem"),
        "zookeeper.ssl.keystore.location": str(folder / "broker.pem"),
        "zookeeper.digest.file": str(folder / "zookeeper.digest"),
        "zookeeper.consumers.digest.file": str(folder / "zookeeper.consumers.digest"),
    }


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(property_line(name, text) for name, text in settings.items())


def _new_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)
