"""What the principal of a connection may do.  A broker without an authorizer has no `Access`: everything is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.protocol.api import ApiKey
from ottla.security.acl import Operation, ResourceType
from ottla.security.authorizer import Authorizer, Rights


class Denial(NamedTuple):
    """A request, or an element of it, that was refused for want of a right."""

    principal: str
    host: str
    listener: str
    client_id: str | None
    api: ApiKey
    operation: Operation
    resource_type: ResourceType
    resource: str
    rule: str


class DenialReports(Protocol):
    def denied(self, denial: Denial) -> None: ...


class Access:
    """The rights of a connection, and where their refusals are reported."""

    __slots__ = ("_reports", "listener", "rights")

    def __init__(self, rights: Rights, listener: str, reports: DenialReports) -> None:
        self.rights: Final = rights
        self.listener: Final = listener
        self._reports: Final = reports

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, api: ApiKey, client_id: str | None
    ) -> bool:
        """A refusal is reported."""
        if self.rights.allows(operation, resource_type, name):
            return True
        self.report(operation, resource_type, name, api, client_id)
        return False

    def report(
        self, operation: Operation, resource_type: ResourceType, name: str, api: ApiKey, client_id: str | None
    ) -> None:
        """The caller has refused it."""
        rights = self.rights
        rule = rights.decide(operation, resource_type, name).rule
        self._reports.denied(
            Denial(rights.principal, rights.host, self.listener, client_id, api, operation, resource_type, name, rule)
        )


# Of a principal, at an address, on a listener.
AccessOf: TypeAlias = Callable[[str, str, str], Access]


def access_by(authorizer: Authorizer, reports: DenialReports) -> AccessOf:
    def access_of(principal: str, host: str, listener: str) -> Access:
        return Access(authorizer.rights_of(principal, host), listener, reports)

    return access_of
