"""Commands answered by an error alone, each in the shape of its reply."""

from __future__ import annotations

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


def refusal(command: Command, error: ErrorCode) -> object:
    """The reply to `command` with this `error`.

    Two commands of classic members have no such answer as COORDINATOR_LOAD_IN_PROGRESS: clients do not expect it, and
    some end with it.  They are told what Apache Kafka tells them.
    """
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        match command:
            case Heartbeat():
                # The next one is asked what is known by then; the member's session begins anew with the load.
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
