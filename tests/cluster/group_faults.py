"""Members of a group that are slow, and static members that come back or are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.target import Fault, Target
from tests.history.consuming_librdkafka import FENCED_STATUS, STATIC_SESSION_TIMEOUT_MS

# A static member that is back within it keeps its membership: the coordinator counts from its last heartbeat.
_KEPT_S: Final = 0.5 * STATIC_SESSION_TIMEOUT_MS / 1000


def slow_members(target: Target) -> str:
    """They delay the rebalance of the others for longer than a session, and stay members all the time."""
    return f"{target.clients.slow_members()} members were slow in a rebalance"


def restart_static_member(target: Target) -> str:
    """It is back within its session: it has its partitions again, and no other member is affected."""
    took_s, given_count = target.clients.restart_static_member()
    if given_count and took_s < _KEPT_S:
        target.clients.problems.append(
            f"a static member was back after {took_s:.1f} s, and others were given {given_count} partitions meanwhile"
        )
    return f"static member killed, back after {took_s:.1f} s; others were given {given_count} partitions meanwhile"


def replace_static_member(target: Target) -> str:
    """A second process with its instance id: the first one is fenced, and its commits are refused."""
    status = target.clients.replace_static_member()
    if status != FENCED_STATUS:
        raise FaultWithoutEffect(f"the replaced static member was not fenced: status {status}")
    return "static member replaced, the former one was fenced"


# Of classic groups: a group of the consumer protocol answers UNRELEASED_INSTANCE_ID until the former one has left.
STATIC_MEMBER_FAULTS: Final[Mapping[str, Fault]] = {
    "restart-static-member": restart_static_member,
    "replace-static-member": replace_static_member,
}
GROUP_FAULTS: Final[Mapping[str, Fault]] = {"slow-members": slow_members, **STATIC_MEMBER_FAULTS}
