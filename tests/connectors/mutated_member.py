"""A member with two planted faults, which the checks must find; its arguments are those of member.py."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.client.consumer_registry.group_nodes import OffsetContent, encode_offset
from ottla.client.membership.kafka_group.member import KafkaGroupMember
from ottla.client.membership.kafka_group.membership import KafkaGroupMembership
from ottla.client.membership.membership import Event
from ottla.client.membership.tree.member import TreeMember
from ottla.client.membership.tree.membership import TreeMembership
from ottla.consumers.effects import Lost
from ottla.consumers.partition_nodes import ClaimId
from ottla.coordination.tree import ANY_VERSION, SessionState
from ottla.model.identifiers import TopicPartition
from tests.connectors.member import main

# The delay until a lost session is noticed: any time may pass between the end of a lease and its notification.
LATE_NEWS_S: Final = 1.0
NO_LEASE_MS: Final = 2**53


def hand_out_past_the_lease() -> None:
    """The lease is not compared with the clock, and the session's end is noticed late."""
    for membership in (TreeMembership, KafkaGroupMembership):
        membership.hand_out_until_ms = property(lambda _: NO_LEASE_MS)  # type: ignore[method-assign, assignment]
    deliver = KafkaGroupMembership._deliver
    on_session_state = TreeMember._on_session_state

    def on_session_state_late(member: TreeMember, state: SessionState) -> None:
        asyncio.get_running_loop().call_later(LATE_NEWS_S, on_session_state, member, state)

    def deliver_late(membership: KafkaGroupMembership, member: KafkaGroupMember, events: Sequence[Event]) -> None:
        if any(isinstance(event, Lost) for event in events):
            threading.Event().wait(LATE_NEWS_S)
        deliver(membership, member, events)

    KafkaGroupMembership._deliver = deliver_late  # type: ignore[method-assign, assignment]
    TreeMember._on_session_state = on_session_state_late  # type: ignore[method-assign, assignment]


def commit_without_the_fence() -> None:
    """Offsets processed in a lost session are written in the next one without a check of the offset nodes."""
    last: dict[TopicPartition, tuple[ClaimId, int]] = {}
    commit, begin_session = TreeMember.commit, TreeMember._begin_session

    def commit_and_remember(member: TreeMember, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        told = list(offsets)
        last.update({partition: (claim, offset) for partition, claim, offset in told})
        commit(member, told)

    def begin_session_and_commit(member: TreeMember) -> None:
        for partition, (claim, offset) in last.items():
            data = encode_offset(OffsetContent(offset, claim, None, "mutant", 0))
            member._begin(member._tree.set(member._paths.offset(partition), data, ANY_VERSION))  # type: ignore[arg-type]
        begin_session(member)

    TreeMember.commit = commit_and_remember  # type: ignore[method-assign, assignment]
    TreeMember._begin_session = begin_session_and_commit  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    hand_out_past_the_lease()
    commit_without_the_fence()
    sys.exit(main(sys.argv[1:]))
