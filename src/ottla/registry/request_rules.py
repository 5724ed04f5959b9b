"""Which requests are taken: those of programs, and none that a web page sends through a developer's browser.

A page of any site can make the browser send requests to a registry on the same machine.  Three rules stop it, and none
of them needs a password:

* `Host` names this registry.  A page whose own name resolves to this machine (DNS rebinding) sends its own name.
* `Origin`, which browsers add and programs do not, is that of this registry.
* A body is of a type that a page can send to another site only after it asked, which is not granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

# As Confluent's registry takes them; without a type it assumes the last one, and so do we.
CONTENT_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
ANY_HOST: Final = "*"

_NAME_CHARS_SHOWN: Final = 100


class Refusal(NamedTuple):
    status: HTTPStatus
    message: str


class RequestRules:
    """`hosts`: the names by which clients may reach the registry, besides addresses and `localhost`; `*` is any."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts: Final = {name.lower().rstrip(".") for name in hosts}

    def refusal(self, headers: Mapping[bytes, bytes], *, has_body: bool) -> Refusal | None:
        """`headers`: by name in small letters."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._names_us(host):
            return Refusal(
                HTTPStatus.FORBIDDEN,
                f"HTTP 403 Forbidden: {host[:_NAME_CHARS_SHOWN]!r} is no name of this registry; if clients "
                "reach it so, name it: schema.registry.allowed.hosts (--allow-host)",
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"http://{host.lower()}":
            return Refusal(
                HTTPStatus.FORBIDDEN, "HTTP 403 Forbidden: the request was sent by a web page of another origin"
            )
        content_type = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if has_body and content_type and content_type not in CONTENT_TYPES:
            return Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"HTTP 415 Unsupported Media Type: send the body with Content-Type: {CONTENT_TYPES[0]}",
            )
        return None

    def _names_us(self, host: str) -> bool:
        if not host or ANY_HOST in self._hosts:
            # Every browser names the host.
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return name == "localhost" or name.endswith(".localhost") or name in self._hosts or _is_address(name)


def _is_address(name: str) -> bool:
    """Rebinding needs a name: no page makes an address mean another machine."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
