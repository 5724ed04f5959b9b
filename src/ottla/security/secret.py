"""A text that must not appear in a log, an error or a plan."""

from __future__ import annotations

from typing import Final

_HIDDEN: Final = "[hidden]"


class Secret:
    """Holds a password, token or key: `reveal` returns it, every other text form is `[hidden]`.

    Pickles with its text, so that settings reach other processes; pickled bytes are as secret as the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return _HIDDEN

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return format(_HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """In constant time for texts of one length."""
        if not isinstance(other, Secret):
            return NotImplemented
        # Imported late: it loads OpenSSL, which a client without security does not need.
        import hmac

        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)
