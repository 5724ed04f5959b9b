"""The error hierarchy of this project: the party at fault, and what to do.

ErrorCode            part of the protocol: data, not an exception, because one request holds many partitions
OttlaError           operations: something that an operator or a caller can act on; has a `hint`
  ConfigError        a setting that cannot be used
  StorageError       the log (see its tree in storage/errors.py)
  WireError          bytes from a peer that break the protocol
AssertionError       a bug in Ottla
"""

from __future__ import annotations

from ottla.model.error_code import ErrorCode


class OttlaError(Exception):
    """An operation failed for a reason that its user can act on.

    `hint` says what to do; a traceback shows it below the message.  `error_code` is its protocol error for clients.
    """

    error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint
        if self.hint is not None and self.hint not in str(self):
            self.add_note(f"hint: {self.hint}")


def details_of(error: BaseException) -> list[str]:
    """Its notes besides the hint: what it was caused by, as the traceback of a user's function."""
    return [note for note in getattr(error, "__notes__", ()) if not note.startswith("hint: ")]


class ConfigError(OttlaError):
    """A setting, file or flag is invalid."""

    error_code = ErrorCode.INVALID_CONFIG


class WireError(OttlaError):
    """Bytes from a peer break the protocol; its connection is closed."""

    error_code = ErrorCode.INVALID_REQUEST


class RequestError(OttlaError):
    """A request is well formed but refused; carries the protocol's own code for the answer."""

    def __init__(self, code: ErrorCode, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.error_code = code

    @property
    def code(self) -> ErrorCode:
        return self.error_code
