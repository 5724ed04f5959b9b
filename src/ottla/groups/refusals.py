"""Refused commands: the error code that a client gets, and the reply in the shape of its command."""

from __future__ import annotations

from typing import Final

from ottla.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from ottla.groups.replies import (
    CommitReply,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeatReply,
    DeleteOffsetsReply,
    DescribedGroup,
    FetchReply,
    JoinReply,
    LeaveReply,
    ListReply,
    SyncReply,
)
from ottla.model.error_code import ErrorCode

# The codes that clients get when the log refused their records, as in Apache Kafka.
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


def refusal(command: Command, error: ErrorCode) -> object:
    """The reply to `command` with this `error`.

    Two commands of classic members have no such answer as COORDINATOR_LOAD_IN_PROGRESS: clients do not expect it, and
    some end with it.  The codes are Apache Kafka's.
    """
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        match command:
            case Heartbeat():
                # The next request is answered from the loaded state; the member's session restarts with the load.
                return ErrorCode.NONE
            case SyncGroup():
                # The rebalance under way was lost with the former coordinator: the member joins again.
                return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    match command:
        case JoinGroup():
            return JoinReply(error, command.member_id)
        case SyncGroup():
            return SyncReply(error)
        case LeaveGroup():
            return LeaveReply(error)
        case CommitOffsets():
            return CommitReply((error,) * len(command.offsets))
        case FetchOffsets():
            return FetchReply(error)
        case DeleteOffsets():
            return DeleteOffsetsReply(error)
        case ListGroups():
            return ListReply(error)
        case DescribeGroup():
            return DescribedGroup(error, command.group_id)
        case ConsumerGroupHeartbeat():
            return ConsumerGroupHeartbeatReply(error)
        case DescribeConsumerGroup():
            return ConsumerGroupDescription(error, command.group_id)
        case _:
            return error


def refused(reply: object, error: ErrorCode) -> object:
    """The reply that replaces a decided one which may no longer leave: `error` and nothing else."""
    match reply:
        case JoinReply():
            return JoinReply(error, reply.member_id)
        case SyncReply() | LeaveReply() | FetchReply() | DeleteOffsetsReply() | ListReply():
            return type(reply)(error)
        case ConsumerGroupHeartbeatReply():
            return ConsumerGroupHeartbeatReply(error)
        case CommitReply():
            return CommitReply((error,) * len(reply.errors))
        case DescribedGroup():
            return DescribedGroup(error, reply.group_id)
        case ConsumerGroupDescription():
            return ConsumerGroupDescription(error, reply.group_id)
        case _:
            assert isinstance(reply, ErrorCode), type(reply)
            return error
