"""Who this broker is to ZooKeeper: its digest credentials, and the key of a session."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.errors import ConfigError

# Part of `tree.OPERATION_BYTES`: the server notes the user on every node that is created.
USER_BYTES_MAX: Final = 64


class DigestCredentials(NamedTuple):
    """User and password of ZooKeeper's scheme `digest`: nodes are created for this user alone."""

    user: str
    password: str

    @classmethod
    def parse(cls, text: str) -> DigestCredentials:
        """From `user:password`.  Raises `ConfigError`, which does not repeat the password."""
        user, colon, password = text.partition(":")
        if not colon or not user or not password:
            raise ConfigError("ZooKeeper's digest credentials are not of the form user:password")
        if len(user.encode()) > USER_BYTES_MAX:
            raise ConfigError(f"the user of ZooKeeper's digest credentials is longer than {USER_BYTES_MAX} bytes")
        return cls(user, password)

    @property
    def credential(self) -> str:
        return f"{self.user}:{self.password}"

    def __repr__(self) -> str:
        return f"DigestCredentials({self.user!r}, password hidden)"


class SessionCredentials(NamedTuple):
    """What lets a process take over a session, to end it: a restarted broker its former one."""

    session_id: int
    password: bytes

    def __repr__(self) -> str:
        return f"SessionCredentials({self.session_id}, password hidden)"
