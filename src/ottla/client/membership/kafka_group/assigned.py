"""Partitions that the user assigns: the group keeps their offsets, and shares nothing out.

Offsets are committed as by a program without a member: the group refuses them while it has members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from ottla.client.membership.kafka_group.claims import GroupClaims
from ottla.client.membership.kafka_group.protocol import DONE, Ask, Outcome, Verdict
from ottla.consumers.rebalance_pace import NEVER_MS
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID

_NO_GENERATION: Final = -1


class AssignedProtocol:
    """See `GroupProtocol`.  It has no request: the offsets are the member's."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        self._partitions = frozenset(partitions)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """These and no others."""
        self._partitions = frozenset(partitions)

    @property
    def member_id(self) -> str:
        return ""

    @property
    def epoch(self) -> int:
        return _NO_GENERATION

    @property
    def lease_until_ms(self) -> int:
        """No other member gets what the user has assigned here."""
        return NEVER_MS

    @property
    def reader(self) -> tuple[str | None, int]:
        return None, _NO_GENERATION

    @property
    def commit_version_min(self) -> int:
        return 0

    @property
    def can_be_fenced(self) -> bool:
        return False

    @property
    def is_settled(self) -> bool:
        return True

    @property
    def due_ms(self) -> int:
        return NEVER_MS

    def assigned(self, ids: Mapping[str, UUID]) -> Mapping[TopicPartition, UUID]:
        return dict.fromkeys(self._partitions, ZERO_UUID)

    def is_missing_topics(self, ids: Mapping[str, UUID]) -> bool:
        return False

    def on_topics(self) -> None:
        """The partitions are the user's choice."""

    def next_ask(self, now_ms: int, claims: GroupClaims) -> Ask | None:
        return None

    def on_answer(self, ask: Ask, answer: object, sent_ms: int, now_ms: int) -> Verdict:
        return DONE

    def on_no_answer(self, ask: Ask) -> None:
        """It sends no request."""

    def on_unsupported(self, ask: Ask) -> Verdict:
        return Verdict(Outcome.FAILED)

    def on_refused_commit(self, code: ErrorCode) -> None:
        """Nothing has to precede the next commit."""

    def on_fenced(self, code: ErrorCode) -> None:
        """There is no member that could be."""

    def abandons(self, ask: Ask) -> bool:
        return False

    def leave(self) -> Ask | None:
        return None
