"""The users of the cluster: a name and a password are right when the cluster accepts a login with them.

So the registry keeps no users, and works with any Kafka cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.broker.security.http_logins import PasswordCheck, UsersUnavailable
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import AuthenticationFailed, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.settings import ClientSecurity, PasswordLogin
from ottla.client.wire.transport import dial_tcp
from ottla.model.errors import ConfigError, OttlaError
from ottla.runtime.clock import Clock
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret

LOGIN_WITHIN_MS: Final = 10_000


class ClusterUsers:
    """Raises `ConfigError` where the registry's own connection has no login."""

    def __init__(self, bootstrap: str, security: ClientSecurity, clock: Clock) -> None:
        if not security.protocol.uses_sasl:
            raise ConfigError(
                "authentication.method=BASIC verifies passwords by logins at the cluster, and the registry connects to "
                f"it by {security.protocol}",
                hint="let it log in: --command-config (beside a broker processes.command.config) with SASL_SSL",
            )
        own = security.login
        self._mechanism: Final = own.mechanism if isinstance(own, PasswordLogin) else SaslMechanism.SCRAM_SHA_512
        self._addresses: Final = parse_bootstrap(bootstrap)
        self._security: Final = security
        self._clock: Final = clock

    def check_of(self, username: str) -> PasswordCheck:
        # The cluster does not say when a credential changes.
        return PasswordCheck(b"", lambda password: self._is_password(username, password))

    def _is_password(self, username: str, password: Secret) -> bool:
        try:
            login = PasswordLogin(self._mechanism, username, password)
        except ConfigError:
            return False
        options = ClientOptions("ottla-registry-login", security=replace(self._security, login=login))
        problem: OttlaError | None = None
        for address in self._addresses:
            try:
                deadline = Deadline(self._clock, LOGIN_WITHIN_MS)
                Connection.open(address, dial_tcp, options, self._clock, deadline).close()
            except AuthenticationFailed:
                return False
            except ClientError as error:
                problem = error
            else:
                return True
        raise UsersUnavailable(f"the cluster verifies no password now: {problem}")
