"""The error codes that clients get when the log refused their records, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_LATER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def code_of(error: OttlaError) -> ErrorCode:
    return error.code if isinstance(error, RequestError) else error.error_code


def code_for_member(code: ErrorCode) -> ErrorCode:
    """For joins, syncs, heartbeats and all else but commits: errors that make a member find its coordinator again."""
    if code in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return _coordinator_code(code)


def code_for_committer(code: ErrorCode) -> ErrorCode:
    if code in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return _coordinator_code(code)


def _coordinator_code(code: ErrorCode) -> ErrorCode:
    if code in _ELSEWHERE:
        return ErrorCode.NOT_COORDINATOR
    if code in _LATER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
