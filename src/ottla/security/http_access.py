"""Who may send a request to a server for HTTP: the schema registry, the admin listener.

Pure: the head of a request and its peer in, a principal or a refusal out.  A request passes four steps:

* Its head is bounded, and names a host and a credential once.
* `Host` names this server, and `Origin`, which browsers add and programs do not, is this server's.  A page of any site
  can make a browser send requests to a server on the same machine; one whose own name resolves to this machine (DNS
  rebinding) sends its own name.
* The credential, or the client's certificate, is that of a user.  A password or a token is verified by the caller.
* The user has the role that the request needs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from enum import Enum
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from ottla.model.errors import ConfigError, OttlaError
from ottla.security.acl import ANONYMOUS, is_principal
from ottla.security.secret import Secret

HEADERS_MAX: Final = 64
# A token has some KiB; a server bounds the whole head as well.
HEADER_BYTES_MAX: Final = 8 * 1024
ANY_HOST: Final = "*"
EVERY_USER: Final = "*"
REALM: Final = "ottla"

_TEXT_CHARS_SHOWN: Final = 100
_UNAUTHORIZED_CODE: Final = 40101
_FORBIDDEN_CODE: Final = 40301
# A second one of these would let this server and a proxy before it read different requests.
_SINGLE: Final = frozenset({b"host", b"authorization", b"origin", b"content-length"})
_TOKEN_BYTES: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Role(Enum):
    READ = "read"
    WRITE = "write"


class Method(Enum):
    """A scheme of the header `Authorization`."""

    BASIC = "Basic"
    BEARER = "Bearer"


class HttpRefused(OttlaError):
    """A request is refused.  `code`: of the registry's clients; `challenges`: the values of `WWW-Authenticate`."""

    def __init__(
        self, status: HTTPStatus, message: str, code: int | None = None, challenges: Sequence[str] = ()
    ) -> None:
        super().__init__(f"HTTP {status.value} {status.phrase}: {message}")
        self.status: Final = status
        self.code: Final = status.value if code is None else code
        self.challenges: Final = tuple(challenges)


class HttpHead(NamedTuple):
    """`target` is the raw path with its query; the names of headers are in small letters."""

    method: str
    target: str
    headers: Sequence[tuple[bytes, bytes]]

    @classmethod
    def parse(cls, head: bytes) -> Self:
        """Of the bytes up to the empty line.  Raises `HttpRefused`."""
        first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
        words = first.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise HttpRefused(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
        headers = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or not _TOKEN_BYTES.issuperset(name):
                raise HttpRefused(HTTPStatus.BAD_REQUEST, "a line of the head is no header")
            headers.append((name.lower(), value.strip(b" \t")))
        return cls(words[0], words[1], headers)

    @property
    def path(self) -> str:
        """Without the query; still quoted."""
        return self.target.partition("?")[0]

    def header(self, name: bytes) -> str | None:
        return next((value.decode("latin-1") for each, value in self.headers if each == name), None)


class Peer(NamedTuple):
    """`principal`: of the client's certificate, which is verified; None: it has none."""

    host: str
    principal: str | None = None
    is_encrypted: bool = False


class Password(NamedTuple):
    """What a client claims."""

    username: str
    secret: Secret


class Token(NamedTuple):
    secret: Secret


# A principal is a text, and proved already.
Claim = str | Password | Token


class HttpHosts:
    """`names`: those by which clients may reach the server, besides addresses and `localhost`; `*` is any."""

    def __init__(self, names: Iterable[str], hint: str) -> None:
        """`hint`: how to add a name."""
        self._names: Final = {name.lower().rstrip(".") for name in names}
        self._hint: Final = hint

    def check(self, head: HttpHead, *, is_encrypted: bool) -> None:
        """Raises `HttpRefused`."""
        host = head.header(b"host") or ""
        if not self._includes(host):
            raise HttpRefused(
                HTTPStatus.FORBIDDEN,
                f"{host[:_TEXT_CHARS_SHOWN]!r} is no name of this server; if clients use it, add it to {self._hint}",
            )
        origin = head.header(b"origin")
        scheme = "https" if is_encrypted else "http"
        if origin is not None and origin.lower() != f"{scheme}://{host.lower()}":
            raise HttpRefused(HTTPStatus.FORBIDDEN, "the request was sent by a web page of another origin")

    def _includes(self, host: str) -> bool:
        if not host or ANY_HOST in self._names:
            # Every browser names the host.
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return name == "localhost" or name.endswith(".localhost") or name in self._names or _is_address(name)


class HttpRoles:
    """The roles of principals."""

    def __init__(self, readers: Iterable[str], writers: Iterable[str]) -> None:
        """`*` is every user that has logged in."""
        self._writers: Final = frozenset(writers)
        self._readers: Final = frozenset(readers) | self._writers

    @classmethod
    def parse(cls, text: str, super_users: Iterable[str] = ()) -> Self:
        """Of `authentication.roles`.  Raises `ConfigError`."""
        if text.strip() == EVERY_USER:
            return cls((), (EVERY_USER,))
        found: dict[Role, set[str]] = {Role.READ: set(), Role.WRITE: set(super_users)}
        for part in text.split(";"):
            if not part.strip():
                continue
            name, equal_sign, principal = (each.strip() for each in part.partition("="))
            role = next((each for each in Role if each.value == name.lower()), None)
            if role is None or not equal_sign or not (principal == EVERY_USER or is_principal(principal)):
                raise ConfigError(
                    f"authentication.roles: {part.strip()!r} is not a role of a principal",
                    hint="write read=* or write=User:NAME, with semicolons between",
                )
            found[role].add(principal)
        return cls(found[Role.READ], found[Role.WRITE])

    def includes(self, principal: str, role: Role) -> bool:
        holders = self._writers if role is Role.WRITE else self._readers
        return principal in holders or (EVERY_USER in holders and principal != ANONYMOUS)


class HttpAccess:
    """The rules of one server.  Without `roles` every client may do everything."""

    def __init__(self, hosts: HttpHosts, methods: Iterable[Method] = (), roles: HttpRoles | None = None) -> None:
        self._hosts: Final = hosts
        self._methods: Final = tuple(methods)
        self._roles: Final = roles

    def claim(self, head: HttpHead, peer: Peer) -> Claim:
        """Who the client is, or claims to be.  Raises `HttpRefused`."""
        _check_bounds(head)
        self._hosts.check(head, is_encrypted=peer.is_encrypted)
        given = head.header(b"authorization")
        if given is None or not self._methods:
            return peer.principal or ANONYMOUS
        scheme, _, text = given.strip().partition(" ")
        method = next((each for each in self._methods if each.value.lower() == scheme.lower()), None)
        if method is None:
            raise self.not_logged_in(f"the scheme {scheme[:_TEXT_CHARS_SHOWN]!r} of Authorization is not offered")
        if method is Method.BEARER:
            return Token(Secret(text.strip()))
        claim = _basic(text.strip())
        if claim is None:
            raise self.not_logged_in("the header Authorization is not that of Basic")
        return claim

    def authorize(self, principal: str, role: Role) -> None:
        """Raises `HttpRefused` unless the principal has the role."""
        if self.allows(principal, role):
            return
        if principal == ANONYMOUS and self._methods:
            raise self.not_logged_in("log in")
        raise HttpRefused(
            HTTPStatus.FORBIDDEN,
            f"{principal[:_TEXT_CHARS_SHOWN]} does not have the role {role.value} (authentication.roles)",
            _FORBIDDEN_CODE,
        )

    def allows(self, principal: str, role: Role) -> bool:
        return self._roles is None or self._roles.includes(principal, role)

    def not_logged_in(self, reason: str) -> HttpRefused:
        challenges = [_CHALLENGES[method] for method in self._methods]
        return HttpRefused(HTTPStatus.UNAUTHORIZED, reason, _UNAUTHORIZED_CODE, challenges)


_CHALLENGES: Final = {
    Method.BASIC: f'Basic realm="{REALM}", charset="UTF-8"',
    Method.BEARER: f'Bearer realm="{REALM}"',
}


def _check_bounds(head: HttpHead) -> None:
    if len(head.headers) > HEADERS_MAX:
        raise HttpRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS_MAX} headers")
    found: set[bytes] = set()
    for name, value in head.headers:
        if len(name) + len(value) > HEADER_BYTES_MAX:
            raise HttpRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a header of more than {HEADER_BYTES_MAX} bytes"
            )
        if name in _SINGLE and name in found:
            raise HttpRefused(HTTPStatus.BAD_REQUEST, f"the header {name.decode('latin-1')} is there twice")
        found.add(name)


def _basic(text: str) -> Password | None:
    try:
        name, colon, password = base64.b64decode(text.encode("latin-1"), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return Password(name, Secret(password)) if name and colon and "\0" not in name + password else None


def _is_address(name: str) -> bool:
    """Rebinding needs a name: no page makes an address mean another machine."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
