"""What users give a client as `security`."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity


def given_security(given: ClientSecurity | Mapping[str, object] | None) -> ClientSecurity:
    """Of names, as `names.client_security`; None: no security.  Raises ConfigError."""
    if given is None:
        return PLAINTEXT
    if isinstance(given, ClientSecurity):
        return given
    # Imported late: a client without security needs none of it.
    from ottla.client.wire.security.setting_names import client_security

    return client_security(given)
