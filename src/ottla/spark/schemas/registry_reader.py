"""Reads schemas from a registry, each once in a process: what an id means never changes."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from ottla.model.errors import OttlaError
from ottla.runtime.clock import Clock, SystemClock
from ottla.spark.schemas.registry_security import NONE, RegistrySecurity

ANSWERS_WITHIN_S: Final = 20.0
# An unknown id is not requested again before: it is no id at all, or a schema that is registered this moment.
UNKNOWN_FOR_MS: Final = 10_000
UNKNOWN_IDS_MAX: Final = 10_000
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryUnreachable(OttlaError):
    hint = "is the registry running, and is its address right (http://HOST:PORT)?"


class UnknownSchema(OttlaError):
    """The registry has no such schema."""


class UnreadableSchema(OttlaError):
    """A schema that cannot be read as columns."""


@dataclass(frozen=True)
class FoundSchema:
    """`type` is AVRO, JSON or PROTOBUF; `referenced` has the texts that it refers to by name, each after its own."""

    type: str
    text: str
    referenced: Mapping[str, str] = field(default_factory=dict)


class RegistryRefused(OttlaError):
    hint = "set basic.auth.user.info or bearer.auth.token, of a user with the role read"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the login to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


class RegistryReader:
    """`urls`: one answers for all."""

    def __init__(
        self,
        urls: str,
        security: RegistrySecurity = NONE,
        clock: Clock | None = None,
    ) -> None:
        self._security = security
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if "https:" in urls:
            handlers.append(urllib.request.HTTPSHandler(context=security.context()))
        self._opener = urllib.request.build_opener(*handlers)
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._known: dict[int, FoundSchema] = {}
        self._clock: Clock = clock or SystemClock()
        # Until when an id counts as unknown.
        self._unknown_until_ms: dict[int, int] = {}

    def by_id(self, schema_id: int) -> FoundSchema:
        """Raises `UnknownSchema`, `RegistryRefused` and `RegistryUnreachable`."""
        found = self._known.get(schema_id)
        if found is not None:
            return found
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._unknown_until_ms.get(schema_id, now_ms):
            raise UnknownSchema(f"the registry does not know the schema {schema_id}")
        try:
            found = self._known[schema_id] = self._found(self._get(f"/schemas/ids/{schema_id}"))
        except UnknownSchema:
            if len(self._unknown_until_ms) >= UNKNOWN_IDS_MAX:
                self._unknown_until_ms.clear()
            self._unknown_until_ms[schema_id] = now_ms + UNKNOWN_FOR_MS
            raise
        return found

    def latest(self, subject: str) -> FoundSchema:
        """Raises `UnknownSchema`, `RegistryRefused` and `RegistryUnreachable`."""
        return self._found(self._get(f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def _found(self, answer: Mapping[str, Any]) -> FoundSchema:
        referenced: dict[str, str] = {}
        self._refer(answer, referenced)
        return FoundSchema(answer.get("schemaType") or "AVRO", answer["schema"], referenced)

    def _refer(self, answer: Mapping[str, Any], referenced: dict[str, str]) -> None:
        for each in answer.get("references") or ():
            if each["name"] not in referenced:
                path = f"/subjects/{quote(each['subject'], safe='')}/versions/{each['version']}?deleted=true"
                other = self._get(path)
                self._refer(other, referenced)
                referenced[each["name"]] = other["schema"]

    def _get(self, path: str) -> Mapping[str, Any]:
        reasons = []
        for url in self._urls:
            request = urllib.request.Request(f"{url}{path}", headers={"Accept": _ACCEPT})
            authorization = self._security.authorization
            if authorization is not None:
                request.add_unredirected_header("Authorization", authorization)
            try:
                with self._opener.open(request, timeout=ANSWERS_WITHIN_S) as answer:
                    found: Mapping[str, Any] = json.load(answer)
                    return found
            except urllib.error.HTTPError as error:
                with error:
                    body = error.read(2_000).decode(errors="replace")
                if error.code == http.HTTPStatus.NOT_FOUND:
                    raise UnknownSchema(f"the registry does not know {path}: {body}") from None
                if error.code in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
                    raise RegistryRefused(f"{url} refused the request: {error.code} {body}") from None
                reasons.append(f"{url}: {error.code} {body}")
            except (OSError, ValueError, http.client.HTTPException) as error:
                reasons.append(f"{url}: {error}")
        raise RegistryUnreachable(f"no registry answers: {'; '.join(reasons) or 'no address is given'}")


_readers: Final[dict[tuple[str, RegistrySecurity], RegistryReader]] = {}
_lock: Final = threading.Lock()


def shared_reader(urls: str, security: RegistrySecurity = NONE) -> RegistryReader:
    """The one of this process, whose schemas the tasks of a worker share."""
    with _lock:
        key = urls, security
        if key not in _readers:
            _readers[key] = RegistryReader(urls, security)
        return _readers[key]
