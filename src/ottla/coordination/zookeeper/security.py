"""Who a process is to ZooKeeper, how it connects, and which rights the nodes get that it creates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.coordination.zookeeper.access import DigestCredentials
from ottla.coordination.zookeeper.node_access import NodeAccess, creator_access, open_access, shared_access
from ottla.model import zookeeper_settings as setting
from ottla.model.errors import ConfigError
from ottla.model.nearest import nearest_name
from ottla.model.setting import Setting
from ottla.model.settings import BrokerSettings
from ottla.runtime.secret_file import read_secret_file
from ottla.security.secret import Secret

if TYPE_CHECKING:
    from ottla.coordination.zookeeper.tls import ZooKeeperTls

_CLIENT_NAMES: Final = frozenset(each.name for each in setting.ZOOKEEPER_CLIENT_SETTINGS)


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """`digest` is the user of this process, `consumers` that of consumers, whose nodes a broker can use as well."""

    digest: DigestCredentials | None = None
    tls: ZooKeeperTls | None = None
    consumers: DigestCredentials | None = None
    sets_acl: bool = True

    @property
    def auth_data(self) -> list[tuple[str, str]]:
        """As kazoo takes it."""
        return [("digest", each.credential) for each in (self.digest, self.consumers) if each is not None]

    @property
    def access(self) -> NodeAccess:
        """Of the nodes that this process creates."""
        if self.digest is None or not self.sets_acl:
            return open_access
        return creator_access if self.consumers is None else shared_access(self.digest, self.consumers)


UNSECURED: Final = ZooKeeperSecurity()


def zookeeper_security(settings: BrokerSettings) -> ZooKeeperSecurity:
    """Raises `ConfigError`, which repeats no password."""
    digest = _digest(settings, setting.ZOOKEEPER_DIGEST, setting.ZOOKEEPER_DIGEST_FILE)
    consumers = _digest(settings, setting.ZOOKEEPER_CONSUMERS_DIGEST, setting.ZOOKEEPER_CONSUMERS_DIGEST_FILE)
    if digest is None and consumers is not None:
        raise ConfigError("zookeeper.consumers.digest is set, and zookeeper.digest is not", hint="set both")
    if digest is not None and consumers is not None and digest.user == consumers.user:
        raise ConfigError(
            f"zookeeper.digest and zookeeper.consumers.digest name the same user {digest.user!r}",
            hint="give consumers another user: theirs has fewer rights",
        )
    sets_acl = settings.given(setting.ZOOKEEPER_SET_ACL)
    if digest is None and sets_acl is not None and sets_acl.value is True:
        raise ConfigError(
            "zookeeper.set.acl=true needs the user that the nodes belong to",
            hint="set zookeeper.digest.file to a file with USER:PASSWORD; SASL is not offered with ZooKeeper",
        )
    return ZooKeeperSecurity(digest, _tls(settings), consumers, settings[setting.ZOOKEEPER_SET_ACL])


def client_security(texts: Mapping[str, str]) -> ZooKeeperSecurity:
    """Of a consumer or an administrator, from settings by their names.  Raises `ConfigError`."""
    for name in texts:
        if name not in _CLIENT_NAMES:
            nearest = nearest_name(name, sorted(_CLIENT_NAMES))
            raise ConfigError(
                f"{name} is not a setting of clients of ZooKeeper",
                hint=f"did you mean {nearest}?" if nearest else f"they are {', '.join(sorted(_CLIENT_NAMES))}",
            )
    return zookeeper_security(BrokerSettings.of(texts))


def _digest(settings: BrokerSettings, text: Setting[str | None], file: Setting[str | None]) -> DigestCredentials | None:
    given, path = settings[text], settings[file]
    if path is not None and given is not None:
        raise ConfigError(f"{text.name} and {file.name} are both set", hint="leave one of them out")
    if path is not None:
        given = read_secret_file(path, file.name)
    return None if given is None else DigestCredentials.parse(given)


def _tls(settings: BrokerSettings) -> ZooKeeperTls | None:
    truststore = settings[setting.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION]
    keystore = settings[setting.ZOOKEEPER_SSL_KEYSTORE_LOCATION]
    if not settings[setting.ZOOKEEPER_SSL_CLIENT_ENABLE]:
        if truststore is not None or keystore is not None:
            raise ConfigError(
                "zookeeper.ssl... is set, and zookeeper.ssl.client.enable is not",
                hint="set zookeeper.ssl.client.enable=true: else ZooKeeper is reached without TLS",
            )
        return None
    for kind in (setting.ZOOKEEPER_SSL_KEYSTORE_TYPE, setting.ZOOKEEPER_SSL_TRUSTSTORE_TYPE):
        if settings[kind].upper() != "PEM":
            raise ConfigError(
                f"{kind.name}={settings[kind]} is not offered, only PEM",
                hint="convert it: keytool -exportcert -rfc for CAs, openssl pkcs12 -nodes for a key",
            )
    if truststore is None:
        raise ConfigError(
            "zookeeper.ssl.client.enable needs the CAs of the ZooKeeper servers' certificates",
            hint="set zookeeper.ssl.truststore.location to a PEM file with them",
        )
    # It imports kazoo.
    from ottla.coordination.zookeeper.tls import ZooKeeperTls

    password = settings[setting.ZOOKEEPER_SSL_KEYSTORE_PASSWORD]
    return ZooKeeperTls(truststore, keystore, None if password is None else Secret(password))
