"""Remembers for a while whether a password was a user's, so that not each request of a client costs its hashes.

No password is kept: an entry is a keyed hash of user, password and the state of the user's credential, with a key that
is in this process only.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from typing import Final

from ottla.security.secret import Secret

RIGHT_FOR_MS: Final = 60_000
# A program that repeats a wrong password costs no hashes; a user that was added meanwhile waits no longer than this.
WRONG_FOR_MS: Final = 5_000
RIGHT_MAX: Final = 1_024
# Apart from the right ones, which guesses would push out.
WRONG_MAX: Final = 256
_LENGTH_BYTES: Final = 8


class CheckedPasswords:
    """`key` is random."""

    def __init__(self, key: bytes) -> None:
        self._key: Final = key
        # Until when an entry counts; the oldest is the first.
        self._right: Final[OrderedDict[bytes, int]] = OrderedDict()
        self._wrong: Final[OrderedDict[bytes, int]] = OrderedDict()

    def entry(self, username: str, password: Secret, state: bytes) -> bytes:
        """`state` changes with the user's credential: what was found with another one does not count."""
        parts = username.encode(), password.reveal().encode(), state
        text = b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts)
        return hmac.digest(self._key, text, "sha256")

    def find(self, entry: bytes, now_ms: int) -> bool | None:
        """None: it must be checked."""
        for found, is_right in ((self._right, True), (self._wrong, False)):
            until_ms = found.get(entry)
            if until_ms is not None:
                if now_ms < until_ms:
                    return is_right
                del found[entry]
        return None

    def add(self, entry: bytes, now_ms: int, *, is_right: bool) -> None:
        found, most, valid_ms = (
            (self._right, RIGHT_MAX, RIGHT_FOR_MS) if is_right else (self._wrong, WRONG_MAX, WRONG_FOR_MS)
        )
        found[entry] = now_ms + valid_ms
        found.move_to_end(entry)
        while len(found) > most:
            found.popitem(last=False)
