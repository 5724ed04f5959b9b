"""The rules for a heartbeat request, independent of the group's state (KIP-848, ConsumerGroupHeartbeat)."""

from __future__ import annotations

from ottla.groups.commands import ConsumerGroupHeartbeat
from ottla.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError


def check_request(command: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    """Raises `RequestError` with the reason."""
    _check_names(command)
    if command.member_epoch == JOIN_EPOCH:
        _check_join(command)
    elif command.member_epoch == LEAVE_STATIC_EPOCH and command.instance_id is None:
        raise _invalid("a member epoch of -2 (a static member leaves for a while) needs an instance id")
    elif command.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"the member epoch {command.member_epoch} means nothing; the smallest is -2")
    if command.server_assignor is not None and command.server_assignor not in settings.consumer_assignors:
        offered = ", ".join(settings.consumer_assignors)
        raise RequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"this broker has no assignor {command.server_assignor!r}; it offers {offered} "
            "(group.consumer.assignors; the client's group.remote.assignor)",
        )


def _check_names(command: ConsumerGroupHeartbeat) -> None:
    needs_member_id = command.makes_own_id or command.member_epoch > JOIN_EPOCH or command.member_epoch == LEAVE_EPOCH
    if needs_member_id and _is_blank(command.member_id):
        raise _invalid("the member id is empty")
    if _is_blank(command.group_id):
        raise _invalid("the group id is empty")
    if command.instance_id is not None and _is_blank(command.instance_id):
        raise _invalid("the instance id is empty; leave it out for a dynamic member")
    if command.rack_id is not None and _is_blank(command.rack_id):
        raise _invalid("the rack id is empty; leave it out when there is none")


def _is_blank(text: str) -> bool:
    return not text.strip()


def _check_join(command: ConsumerGroupHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("a member that joins (epoch 0) must tell its rebalance time-out")
    if command.owned is None or command.owned:
        raise _invalid("a member that joins (epoch 0) must say that it holds no partitions: an empty list")
    if command.topic_names is None and command.topic_pattern is None:
        raise _invalid("a member that joins (epoch 0) must subscribe to topic names or to a pattern")


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
