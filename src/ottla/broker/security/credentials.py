"""The users of a broker: SCRAM credentials in the tree, and those of PLAIN in a file."""

from __future__ import annotations

import hmac
import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.errors import ConfigError
from ottla.security.jaas import parse_jaas
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import ITERATIONS_MIN
from ottla.security.scram_server import CredentialDamaged, Found, ScramCredential, decoy
from ottla.security.secret import Secret

_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_USER: Final = "user_"
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


class ScramCredentials:
    """Finds a user's credential in the settings of the tree."""

    def __init__(self, view: Callable[[], ConfigsView], secret: bytes) -> None:
        """`secret` is the cluster's: all brokers answer alike for a user that does not exist."""
        self._view: Final = view
        self._secret: Final = secret
        # Of the view for which they were counted.
        self._counted: ConfigsView | None = None
        self._iterations: dict[SaslMechanism, int] = {}

    def find(self, mechanism: SaslMechanism, username: str) -> Found:
        """Takes the same time for any name, so that it does not reveal which users exist."""
        view = self._view()
        found = decoy(mechanism, self._secret, username, self._usual_iterations(view, mechanism))
        text = view.of(ConfigEntity.user(username)).get(mechanism)
        if text is None:
            return found
        try:
            return Found(ScramCredential.parse(text), True)
        except CredentialDamaged:
            return found

    def _usual_iterations(self, view: ConfigsView, mechanism: SaslMechanism) -> int:
        """The count that most users have: a decoy with another one would reveal that its user does not exist."""
        if view is not self._counted:
            self._counted = view
            self._iterations.clear()
        known = self._iterations.get(mechanism)
        if known is None:
            users = (view.of(ConfigEntity.user(name)).get(mechanism) for name in view.users())
            counts = Counter(text.rpartition("iterations=")[2] for text in users if text is not None)
            usual = counts.most_common(1)[0][0] if counts else ""
            known = int(usual) if usual.isascii() and usual.isdigit() else ITERATIONS_MIN
            self._iterations[mechanism] = known
        return known


class PlainUsers:
    """The users of PLAIN: those of the settings, and `name=password` lines of a file, read again when it has changed.

    Constructed at the start: raises `ConfigError` when the file cannot be read, or others can read it.
    """

    def __init__(self, path: str | None, configured: Mapping[str, Secret] = MappingProxyType({})) -> None:
        """A name in the file overrides the same name in the settings."""
        self._path: Final = path
        self._configured: Final = configured
        self._identity = None if path is None else _identity(path)
        self._passwords = configured if path is None else {**configured, **_read(path)}

    def is_password(self, username: str, password: Secret) -> bool:
        """Takes the same time for any name."""
        self._follow()
        expected = self._passwords.get(username)
        compared = hmac.compare_digest(
            password.reveal().encode(), (Secret("") if expected is None else expected).reveal().encode()
        )
        return compared and expected is not None

    def _follow(self) -> None:
        """A file that cannot be read leaves the former users."""
        if self._path is None:
            return
        try:
            identity = _identity(self._path)
            if identity != self._identity:
                self._passwords = {**self._configured, **_read(self._path)}
                self._identity = identity
        except ConfigError:
            return


def users_of_jaas(text: str) -> Mapping[str, Secret]:
    """The users of Kafka's PlainLoginModule: its options `user_<name>`.  Raises `ConfigError`."""
    options = parse_jaas(text).options
    return {name.removeprefix(_USER): Secret(value) for name, value in options.items() if name.startswith(_USER)}


def _identity(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise ConfigError(f"sasl.plain.users.file: cannot read {path}: {error.strerror or error}") from None
    if stat.S_IMODE(found.st_mode) & _READABLE_BY_OTHERS:
        raise ConfigError(f"sasl.plain.users.file: others can read {path}", hint=f"chmod 600 {path}")
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(path: str) -> Mapping[str, Secret]:
    try:
        with open(path, "rb") as file:
            text = file.read(_FILE_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"sasl.plain.users.file: cannot read {path}: {error}") from None
    users: dict[str, Secret] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, password = line.partition("=")
        if not separator or not name.strip() or not password:
            raise ConfigError(f"sasl.plain.users.file: line {number} of {path} is not name=password")
        users[name.strip()] = Secret(password)
    return users
