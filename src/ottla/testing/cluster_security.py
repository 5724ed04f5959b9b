"""A secured cluster on one machine: its certificates, users and settings, made once in a folder.

Brokers and clients connect by TLS and log in by SCRAM, the brokers at a listener for them alone.  ZooKeeper has TLS and
a tree that belongs to the brokers.  There is an authorizer, and one user who may do everything: `admin`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from ottla.client.wire.destination.local_cluster import CLIENT_PROPERTIES
from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties
from ottla.client.wire.security.settings import ClientSecurity
from ottla.coordination import layout
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.security import zookeeper_security
from ottla.model.properties import property_line
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from ottla.runtime.installed import TOKENS, require_modules
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram_server import SALT_BYTES, ScramCredential
from ottla.security.secret import Secret
from ottla.testing.zookeeper import ServerTls

ADMIN: Final = "admin"
BROKER: Final = "broker"
MECHANISM: Final = SaslMechanism.SCRAM_SHA_512
# The protocol at both listeners: flags name the first one as their protocol, and the second one so.
PROTOCOL: Final = "SASL_SSL"
BROKERS_LISTENER: Final = "SASL_SSL_2"
# ZooKeeper's own root belongs to no cluster.
CHROOT: Final = "/ottla"
_ITERATIONS: Final = 8_192
_PASSWORD_BYTES: Final = 16
_OWNER_ONLY: Final = 0o600


class ClusterSecurity:
    """The files of `folder`, which `make_missing` makes; it needs the extra `security`.

    Each is readable by its owner only; `client_properties` has what a client needs to log in as `admin`.
    """

    protocol: Final = PROTOCOL
    chroot: Final = CHROOT

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder.absolute()
        self.ca: Final = self.folder / "ca.pem"
        self.keystore: Final = self.folder / "broker.pem"
        self.digest: Final = self.folder / "zookeeper.digest"
        self.consumers_digest: Final = self.folder / "zookeeper.consumers.digest"
        self.password: Final = self.folder / "broker.password"
        self.admin_password: Final = self.folder / "admin.password"
        self.client_properties: Final = self.folder / CLIENT_PROPERTIES
        self.server_properties: Final = self.folder / "server.properties"

    def make_missing(self) -> None:
        """All files, unless they were made before.  Raises `ConfigError` without the extra."""
        # The last file that is written.
        if self.client_properties.exists():
            return
        require_modules("a secured cluster", TOKENS[1:], "security")
        from ottla.security.issuing import issue

        issued = issue(["localhost", "127.0.0.1"], datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC))
        admin = _new_password()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, text in (
            (self.ca, issued.authority),
            (self.folder / "ca.key", issued.authority_key),
            (self.keystore, issued.broker),
            (self.digest, f"brokers:{_new_password()}\n"),
            (self.consumers_digest, f"consumers:{_new_password()}\n"),
            (self.password, f"{_new_password()}\n"),
            (self.admin_password, f"{admin}\n"),
            (self.client_properties, self._properties(admin)),
        ):
            _write(path, text)

    @property
    def zookeeper_tls(self) -> ServerTls:
        return ServerTls(self.keystore, self.ca)

    @property
    def settings(self) -> dict[str, str]:
        """Of every broker; passwords are in files, so that no command line shows them."""
        return {
            **self.zookeeper_tls.client_settings,
            "zookeeper.digest.file": str(self.digest),
            "zookeeper.consumers.digest.file": str(self.consumers_digest),
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.location": str(self.ca),
            "inter.broker.listener.name": BROKERS_LISTENER,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.inter.broker.username": BROKER,
            "sasl.inter.broker.password.file": str(self.password),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }

    @property
    def client(self) -> ClientSecurity:
        """Of `admin`."""
        return security_of_properties(read_client_properties(self.client_properties))

    def prepare(self, connect: str) -> None:
        """Write the first users into the tree, before a broker starts: no listener lets a client in without one."""
        run(self._prepare(connect))

    def write_settings(self, connect: str, settings: Mapping[str, str]) -> None:
        """Those of all brokers, to `server_properties`: by it `ottla secure token` lets others join.

        The port of ZooKeeper may be another one than at the last start.
        """
        lines = {
            "zookeeper.connect": connect,
            "listeners": f"{PROTOCOL}://127.0.0.1:0,{BROKERS_LISTENER}://127.0.0.1:0",
            "listener.security.protocol.map": f"{PROTOCOL}:{PROTOCOL},{BROKERS_LISTENER}:{PROTOCOL}",
            **settings,
        }
        _write(self.server_properties, "".join(property_line(name, text) for name, text in lines.items()))

    async def _prepare(self, connect: str) -> None:
        security = zookeeper_security(BrokerSettings.of(self.settings))
        session = await ZooKeeperBackend(connect, security=security).connect()
        try:
            await layout.lay_out(session)
            registry = ConfigRegistry(session)
            for name, path in ((BROKER, self.password), (ADMIN, self.admin_password)):
                new = _credential(path)
                # A user that exists may have got another password since.
                await registry.update(ConfigEntity.user(name), partial(_with_missing, new))
        finally:
            await session.close()

    def _properties(self, password: str) -> str:
        lines = {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{ADMIN}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            **self.zookeeper_tls.client_settings,
            "zookeeper.digest.file": str(self.digest),
        }
        return "".join(f"{name}={text}\n" for name, text in lines.items())


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY), "w") as file:
        file.write(text)


def _new_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def _with_missing(new: Mapping[str, str], found: Mapping[str, str]) -> Mapping[str, str]:
    return {**new, **found}


def _credential(path: Path) -> dict[str, str]:
    """Of the password in a file."""
    password = Secret(path.read_text(encoding="utf-8").rstrip("\n"))
    credential = ScramCredential.of_password(MECHANISM, password, secrets.token_bytes(SALT_BYTES), _ITERATIONS)
    return {MECHANISM: credential.to_text()}
