"""What can be wrong with the records of `__consumer_offsets`."""

from __future__ import annotations

from typing import ClassVar

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError


class GroupRecordError(OttlaError):
    """A record of `__consumer_offsets` is not what its version says: damaged, or written by something else."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE
    hint = "read the record with Kafka's DumpLogSegments --offsets-decoder; the group can be deleted and made anew"
