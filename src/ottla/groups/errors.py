"""Errors in the records of `__consumer_offsets`."""

from __future__ import annotations

from typing import ClassVar

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError


class GroupRecordError(OttlaError):
    """A record of `__consumer_offsets` does not match its version: damaged, or written by another program."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE
    hint = "read the record with Kafka's DumpLogSegments --offsets-decoder; the group can be deleted and made anew"
