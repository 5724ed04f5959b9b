"""TLS and login of a client of a schema registry, by the names of Confluent's client."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ottla.model.errors import ConfigError
from ottla.model.limits import KIB
from ottla.model.nearest import nearest_name
from ottla.runtime.text_file import read_text_file
from ottla.security.secret import Secret

_USER_INFO: Final = "basic.auth.user.info"
_USER_INFO_FILE: Final = "basic.auth.user.info.file"
_TOKEN: Final = "bearer.auth.token"
_CA: Final = "ssl.ca.location"
_CERTIFICATE: Final = "ssl.certificate.location"
_KEY: Final = "ssl.key.location"
_NAMES: Final = (_USER_INFO, _USER_INFO_FILE, _TOKEN, _CA, _CERTIFICATE, _KEY)
_FILE_BYTES_MAX: Final = 64 * KIB


@dataclass(frozen=True, slots=True)
class RegistrySecurity:
    """Paths are read by each process for itself.  It pickles with its secrets, and no text form of it shows one.

    user_info             NAME:PASSWORD
    user_info_path        a file with that, read at each request, instead of it
    token                 of a bearer
    ca_path               who signs the registry's certificate; None: the system's authorities
    certificate_path      the client's own, PEM; the key may be in the same file
    """

    user_info: Secret | None = None
    user_info_path: str | None = None
    token: Secret | None = None
    ca_path: str | None = None
    certificate_path: str | None = None
    key_path: str | None = None

    @classmethod
    def of(cls, names: Mapping[str, str]) -> Self:
        """Raises `ConfigError` for an unknown name, and for names that contradict each other."""
        for name in names:
            if name not in _NAMES:
                nearest = nearest_name(name, _NAMES)
                hint = f"known are {', '.join(_NAMES)}" if nearest is None else f"did you mean {nearest}?"
                raise ConfigError(f"{name} is not a setting of a registry's client", hint=hint)
        logins = [name for name in (_USER_INFO, _USER_INFO_FILE, _TOKEN) if name in names]
        if len(logins) > 1:
            raise ConfigError(f"{logins[0]} and {logins[1]} are both set", hint="leave one of them out")
        if _KEY in names and _CERTIFICATE not in names:
            raise ConfigError(f"{_KEY} is set without its certificate", hint=f"set {_CERTIFICATE}")
        user_info, token = names.get(_USER_INFO), names.get(_TOKEN)
        if user_info is not None and ":" not in user_info:
            raise ConfigError(f"{_USER_INFO} has no colon", hint="write NAME:PASSWORD")
        return cls(
            None if user_info is None else Secret(user_info),
            names.get(_USER_INFO_FILE),
            None if token is None else Secret(token),
            names.get(_CA),
            names.get(_CERTIFICATE),
            names.get(_KEY),
        )

    @property
    def authorization(self) -> str | None:
        """The header of each request.  Raises `ConfigError` when its file cannot be read."""
        if self.token is not None:
            return f"Bearer {self.token.reveal()}"
        text = None if self.user_info is None else self.user_info.reveal()
        if self.user_info_path is not None:
            text = read_text_file(Path(self.user_info_path), _FILE_BYTES_MAX, "name a file with NAME:PASSWORD")
            text = text.rstrip("\r\n")
        return None if text is None else f"Basic {base64.b64encode(text.encode()).decode()}"

    def context(self) -> ssl.SSLContext:
        """Names of hosts are verified.  Raises `ConfigError` for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_path)
            if self.certificate_path is not None:
                context.load_cert_chain(self.certificate_path, self.key_path)
        except OSError as error:
            files = ", ".join(filter(None, (self.ca_path, self.certificate_path, self.key_path)))
            raise ConfigError(
                f"the certificates of the registry's client cannot be used: {error}", hint=f"they are PEM: {files}"
            ) from None
        return context


NONE: Final = RegistrySecurity()
