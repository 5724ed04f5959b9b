"""What programs give a client as `bootstrap` and `security`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.destination.destination import Destination, Given
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import ClientSecurity


def destination_and_security(
    bootstrap: str | Sequence[str] | None, security: ClientSecurity | Mapping[str, object] | None
) -> tuple[Destination, ClientSecurity]:
    """Without an address the rule of `destination` chooses it, and the security settings with it.

    To an address that was given only the security applies that was given.  Raises BadAddress, ConfigError, and
    OttlaError for a profile or a cluster's directory that cannot be used.
    """
    if bootstrap is not None:
        if not isinstance(bootstrap, str):
            parse_bootstrap(bootstrap)
            bootstrap = ",".join(bootstrap)
        return Destination(bootstrap), given_security(security)
    # Imported late: most programs give an address.
    from ottla.client.wire.destination.found import find_destination, security_of

    destination = find_destination(Given())
    return destination, security_of(destination) if security is None else given_security(security)
