"""What the registry refuses, by the codes that its clients know (Confluent's REST API)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ottla.model.errors import OttlaError


class RegistryCode(IntEnum):
    """The HTTP status, followed by two digits."""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    SUBJECT_COMPATIBILITY_NOT_SET = 40408
    SUBJECT_MODE_NOT_SET = 40409
    INCOMPATIBLE_SCHEMA = 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY_LEVEL = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    STORE_ERROR = 50001
    OPERATION_TIMED_OUT = 50002
    FORWARDING_FAILED = 50003


_DIGITS_BELOW_THE_STATUS: Final = 100


class RegistryError(OttlaError):
    """A request is refused; it has changed nothing, unless `code` is STORE_ERROR: then it may or may not have."""

    def __init__(self, code: RegistryCode, message: str) -> None:
        super().__init__(message)
        self.code: Final = code

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.code // _DIGITS_BELOW_THE_STATUS


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(RegistryCode.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(RegistryCode.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    which = "" if schema_id is None else f" {schema_id}"
    return RegistryError(RegistryCode.SCHEMA_NOT_FOUND, f"Schema{which} not found")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(RegistryCode.INVALID_SCHEMA, reason)
