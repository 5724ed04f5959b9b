"""The keys of a token issuer: read from a file or a URL, again from time to time, beside the event loop."""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from ottla.broker.security.bearer_tokens import TokenKey, parse_keys
from ottla.model.errors import ConfigError
from ottla.observe.events import fields

log = logging.getLogger(__name__)

_BYTES_MAX: Final = 1024 * 1024
_TIMEOUT_S: Final = 10.0
_RETRY_MS: Final = 1_000
_RETRY_MS_MAX: Final = 60_000
# A token with an unknown key lets the keys be read again, but not more often than this.
_READ_AGAIN_MS: Final = 10_000
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The operator's URL is the only one that is read."""

    def redirect_request(self, *_: object) -> None:
        return None


class KeySet:
    """Empty until it is read; a set that cannot be read leaves the former keys."""

    def __init__(self, url: str, refresh_ms: int) -> None:
        """`url`: `https://...`, or `file:///...`.  Raises `ConfigError` for another one."""
        parts = urlsplit(url)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if parts.scheme not in ("https", "file") and not is_local:
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url: {parts.scheme or 'no'} scheme is not accepted",
                hint="use https://, or file:///PATH: who changes the keys decides who logs in",
            )
        self._url: Final = url
        self._refresh_ms: Final = refresh_ms
        self.keys: Mapping[str, TokenKey] = {}
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read them again from time to time."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def read_again(self) -> None:
        """A token names a key that is not known."""
        self._is_wanted.set()

    async def _follow(self) -> None:
        wait_ms = self._refresh_ms if self.keys else _RETRY_MS
        while True:
            await asyncio.sleep(min(wait_ms, _READ_AGAIN_MS) / 1000)
            if wait_ms > _READ_AGAIN_MS:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_wanted.wait(), (wait_ms - _READ_AGAIN_MS) / 1000)
            self._is_wanted.clear()
            if await self.read():
                wait_ms = self._refresh_ms
            else:
                wait_ms = min(2 * wait_ms, _RETRY_MS_MAX) if wait_ms < self._refresh_ms else _RETRY_MS

    async def read(self) -> bool:
        """Whether it was read; else the former keys stay."""
        try:
            text = await asyncio.get_running_loop().run_in_executor(None, _content, self._url)
            keys = parse_keys(text)
        except (OSError, ValueError, HTTPException, ConfigError) as error:
            log.error("token_keys.not_read", extra=fields(url=self._url, error=error))
            return False
        if keys.keys() != self.keys.keys():
            log.info("token_keys.read", extra=fields(url=self._url, keys=",".join(sorted(keys))))
        self.keys = keys
        return True


def _content(url: str) -> str:
    """In a thread.  Raises `OSError`, `ValueError` or `HTTPException`."""
    opener = urllib.request.build_opener(_NoRedirects())
    with opener.open(url, timeout=_TIMEOUT_S) as response:
        data: bytes = response.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"more than {_BYTES_MAX} bytes")
    return data.decode()
