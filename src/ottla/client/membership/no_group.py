"""A consumer without a group: it has the partitions that the user assigns, and no offsets are committed."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from ottla.client.groups.group_types import GroupMetadata
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import Event, OnEvents
from ottla.consumers.effects import Committed, Left, Released, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.rebalance_pace import NEVER_MS
from ottla.consumers.share import StreamId
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NO_OFFSET, TopicPartition

_STREAM: Final = StreamId("", 0)
_SESSION_ID_BITS: Final = 63


class NoGroup:
    """`Membership` without a thread: the calling one gets the events.

    `commit` is answered at once: the first position of a partition is committed by every stream, which has no use here.
    """

    def __init__(self) -> None:
        self._session_id = secrets.randbits(_SESSION_ID_BITS)
        self._claims: dict[TopicPartition, ClaimId] = {}
        self._claims_count = 0
        self._on_events: OnEvents | None = None

    @property
    def hand_out_until_ms(self) -> int:
        return NEVER_MS

    def group_metadata(self) -> GroupMetadata | None:
        raise ConfigError("the consumer has no group, and offsets are of one", hint='open it with group="its name"')

    def join(self, subscription: Subscription, on_events: OnEvents) -> None:
        assert self._on_events is None, "a membership is joined once"
        self._on_events = on_events
        self.subscribe(subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Read these partitions, and no others.  Raises ConfigError for topics: a group shares out their partitions."""
        wanted = subscription.partitions
        if wanted is None:
            raise ConfigError(
                "a consumer without a group has no share of a topic",
                hint='open it with group="its name", or assign() partitions',
            )
        events: list[Event] = [self._release(partition) for partition in sorted(self._claims.keys() - wanted)]
        for partition in sorted(wanted - self._claims.keys()):
            self._claims_count += 1
            claim = self._claims[partition] = ClaimId(self._session_id, self._claims_count)
            events.append(Start(partition, _STREAM, NO_OFFSET, claim, NEVER_MS))
        self._deliver(events)

    def _release(self, partition: TopicPartition) -> Event:
        return Released(partition, self._claims.pop(partition), NO_OFFSET)

    def _deliver(self, events: list[Event]) -> None:
        assert self._on_events is not None
        self._on_events(events)

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        self._deliver([Committed(*row) for row in offsets])

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        """No claim of it is ever revoked."""

    def leave(self) -> None:
        self._deliver([*(self._release(partition) for partition in sorted(self._claims)), Left()])

    def close(self) -> None:
        """It has no thread and no connection."""
