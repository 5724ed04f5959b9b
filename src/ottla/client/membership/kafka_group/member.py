"""A member of a Kafka group: its requests to the coordinator, and the events for its streams.

Pure.  Events are its methods; each returns events for the streams.  `next_ask` is the one request that is due,
`due_ms` when to ask for it again if nothing happens before.  Times are those of a clock that advances while the machine
is suspended, as sessions do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ottla.client.groups.group_offsets import commit_topics, group_error_of, offset_fetch, offset_rows
from ottla.client.groups.group_types import CommittedOffset, GroupMetadata
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.assigned import AssignedProtocol
from ottla.client.membership.kafka_group.claims import CommitRow, GroupClaims, Wanted
from ottla.client.membership.kafka_group.classic import ClassicGroupProtocol
from ottla.client.membership.kafka_group.consumer import ConsumerGroupProtocol
from ottla.client.membership.kafka_group.options import AUTO, CLASSIC, CONSUMER, KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import Ask, GroupProtocol, Outcome, Purpose, Verdict, verdict_of
from ottla.client.membership.kafka_group.topics import GroupTopics
from ottla.client.membership.membership import Event, Failed
from ottla.client.wire.errors import ClientError, UnsupportedByBroker
from ottla.consumers.effects import Blocked, Left, Settled
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.rebalance_pace import RebalancePace, Retries
from ottla.consumers.share import StreamId, share
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition, indexes_by_topic
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataResponse
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.schemas.offset_fetch import OffsetFetchResponse


def spread(
    partitions: Iterable[int], streams_count: int, consumer_id: str, present: Mapping[int, StreamId]
) -> dict[int, StreamId]:
    """A stream for each partition of one topic; the sizes differ by one at most.

    A partition stays with its stream as far as that allows; where nothing is present, each stream gets a run.
    """
    wanted = sorted(partitions)
    streams = [StreamId(consumer_id, number) for number in range(streams_count)]
    by_stream: dict[StreamId, list[int]] = {stream: [] for stream in streams}
    for partition in wanted:
        stream = present.get(partition)
        if stream in by_stream:
            by_stream[stream].append(partition)
    # The streams with most partitions get the larger shares, so that the fewest move.
    fullest_first = sorted(streams, key=lambda stream: (-len(by_stream[stream]), stream))
    sizes = sorted(_sizes(len(wanted), streams), reverse=True)
    chosen = {
        partition: stream
        for stream, size in zip(fullest_first, sizes, strict=True)
        for partition in by_stream[stream][:size]
    }
    room = {stream: size - min(size, len(by_stream[stream])) for stream, size in zip(fullest_first, sizes, strict=True)}
    free = iter(partition for partition in wanted if partition not in chosen)
    for stream in streams:
        for _ in range(room[stream]):
            chosen[next(free)] = stream
    return chosen


def _sizes(partitions_count: int, streams: list[StreamId]) -> list[int]:
    counts = dict.fromkeys(streams, 0)
    for stream in share(partitions_count, streams).values():
        counts[stream] += 1
    return list(counts.values())


# A topic may just have been made, and the coordinator not know it yet; or it was deleted.
_UNKNOWN_TOPIC_WAIT_MS: Final = 3_000
# A coordinator that cannot be reached ends the session after its time-out.
_LEAVE_ATTEMPTS_MAX: Final = 3


class KafkaGroupMember:
    """`session_id` is of this membership alone, `chance` spreads the members of a group."""

    def __init__(
        self,
        group_id: str,
        consumer_id: str,
        session_id: int,
        subscription: Subscription,
        options: KafkaGroupOptions,
        chance: random.Random,
    ) -> None:
        self._group_id: Final = group_id
        self._consumer_id: Final = consumer_id
        self._options: Final = options
        pace = RebalancePace(retry_ms=options.retry_backoff_ms, retry_max_ms=options.retry_backoff_max_ms)
        # No request is due while the coordinator is away; single partitions wait separately.
        self._retries: Final = Retries(pace, chance)
        self._commit_retries: Final = Retries(pace, chance)
        self._offset_retries: Final = Retries(pace, chance)
        self._attempts_max: Final = pace.attempts_max
        self._topics: Final = GroupTopics(subscription, options, chance)
        # What the user has assigned, where the group does not.
        self._partitions = subscription.partitions
        self._claims: Final = GroupClaims(session_id)
        self._protocol: GroupProtocol | None = None
        self._coordinator_id = -1
        self._offers_consumer = False
        # The protocols that the group has refused since it last had this member.
        self._refused: set[str] = set()
        self._rows: list[CommitRow] = []
        self._last: Purpose | None = None
        self._wants_anew = False
        self._is_settled = False
        self._is_leaving = False
        self._leave_ask: Ask | None = None
        self._leave_attempts_count = 0
        self._is_moved = False
        self.is_over = False

    @property
    def hand_out_until_ms(self) -> int:
        return 0 if self.is_over or self._protocol is None else self._protocol.lease_until_ms

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """As which member offsets are committed; None: not a member."""
        if not self.hand_out_until_ms:
            return None
        assert self._protocol is not None, "a lease is of a protocol"
        instance_id = self._options.group_instance_id
        return GroupMetadata(self._group_id, self._protocol.epoch, self._protocol.member_id, instance_id)

    @property
    def due_ms(self) -> int:
        if self._retries.is_waiting:
            return self._retries.due_ms
        due_ms = min(self._topics.due_ms, self._commit_retries.due_ms, self._offset_retries.due_ms)
        return due_ms if self._protocol is None else min(due_ms, self._protocol.due_ms)

    def take_moved(self) -> bool:
        """Whether the coordinator has to be looked up before the next request."""
        is_moved, self._is_moved = self._is_moved, False
        return is_moved

    def next_ask(self, now_ms: int) -> Ask | None:
        """The request that is due, when none is under way."""
        if self.is_over or not _is_free(self._retries, now_ms):
            return None
        ask = self._choose(now_ms)
        if ask is not None:
            self._last = ask.purpose
        return ask

    def _choose(self, now_ms: int) -> Ask | None:
        protocol = self._protocol
        if self._is_leaving and self._claims.is_empty:
            self._leave_ask = None if protocol is None else protocol.leave()
            return self._leave_ask
        if now_ms >= self._topics.due_ms:
            return self._topics.ask()
        if protocol is None:
            return None
        # Neither is a heartbeat late for commits that come one after the other, nor does a commit wait for news.
        if now_ms >= protocol.due_ms or self._last in (Purpose.COMMIT, Purpose.OFFSETS):
            ask = protocol.next_ask(now_ms, self._claims)
            if ask is not None:
                return ask
        if self._claims.has_uncommitted and _is_free(self._commit_retries, now_ms):
            return self._ask_commit(protocol)
        if self._claims.has_unread and _is_free(self._offset_retries, now_ms):
            return self._ask_offsets(protocol)
        return protocol.next_ask(now_ms, self._claims)

    def _ask_commit(self, protocol: GroupProtocol) -> Ask:
        self._rows = self._claims.take_uncommitted()
        topics = commit_topics({row.partition: CommittedOffset(row.offset) for row in self._rows})
        instance_id = self._options.group_instance_id if protocol.member_id else None
        request = OffsetCommitRequest(self._group_id, protocol.epoch, protocol.member_id, instance_id, topics=topics)
        return Ask(
            Purpose.COMMIT,
            ApiKey.OFFSET_COMMIT,
            lambda _: request,
            OffsetCommitResponse,
            self._options.request_timeout_ms,
            protocol.commit_version_min,
        )

    def _ask_offsets(self, protocol: GroupProtocol) -> Ask:
        partitions = self._claims.take_unread()
        member_id, epoch = protocol.reader
        return Ask(
            Purpose.OFFSETS,
            ApiKey.OFFSET_FETCH,
            lambda version: offset_fetch(
                version, self._group_id, partitions, member_id=member_id, member_epoch=epoch, is_stable=True
            ),
            OffsetFetchResponse,
            self._options.request_timeout_ms,
        )

    def abandons(self, ask: Ask) -> bool:
        """Whether the answer to this request is not worth waiting for any more."""
        return self._is_leaving and self._protocol is not None and self._protocol.abandons(ask)

    def on_connected(self, coordinator_id: int, *, offers_consumer: bool) -> list[Event]:
        """A connection to a coordinator was opened; `offers_consumer`: it knows the heartbeats of KIP-848."""
        self._coordinator_id, self._offers_consumer = coordinator_id, offers_consumer
        if self._protocol is None and self._partitions is not None:
            self._protocol = AssignedProtocol(self._partitions)
        elif self._protocol is None:
            wanted = self._options.protocol
            is_classic = wanted == CLASSIC or (wanted == AUTO and not offers_consumer)
            self._protocol = self._new_protocol(CLASSIC if is_classic else CONSUMER)
        elif isinstance(self._protocol, ConsumerGroupProtocol):
            self._protocol.on_coordinator(coordinator_id)
        return []

    def _new_protocol(self, name: str) -> GroupProtocol:
        if name == CLASSIC:
            return ClassicGroupProtocol(self._group_id, self._options, self._topics)
        protocol = ConsumerGroupProtocol(self._group_id, self._consumer_id, self._options, self._topics)
        protocol.on_coordinator(self._coordinator_id)
        return protocol

    def on_answer(self, ask: Ask, answer: object, sent_ms: int, now_ms: int) -> list[Event]:
        """The request was sent at `sent_ms`."""
        if self.is_over:
            return []
        if ask is self._leave_ask:
            return self._on_leave_answer(answer, now_ms)
        events: list[Event] = []
        if isinstance(answer, MetadataResponse):
            self._topics.on_answer(answer, now_ms)
            if self._protocol is not None:
                self._protocol.on_topics()
            self._wants_anew = True
        elif isinstance(answer, OffsetCommitResponse):
            events = self._on_commit_answer(answer, now_ms)
        elif isinstance(answer, OffsetFetchResponse):
            events = self._on_offsets_answer(answer, now_ms)
        else:
            assert self._protocol is not None
            verdict = self._protocol.on_answer(ask, answer, sent_ms, now_ms)
            events = self._on_membership(verdict, now_ms)
        return events + self._conclude(now_ms)

    def _on_membership(self, verdict: Verdict, now_ms: int) -> list[Event]:
        self._wants_anew = True
        if verdict.outcome is Outcome.DONE:
            self._retries.reset()
            if self.hand_out_until_ms:
                self._refused.clear()
            return []
        return self._on_verdict(verdict, now_ms)

    def on_no_answer(self, ask: Ask, error: ClientError, now_ms: int) -> list[Event]:
        """The request may or may not have been executed; the coordinator is looked up before the next one."""
        if self.is_over:
            return []
        if ask is self._leave_ask:
            return self._on_left_in_vain(now_ms)
        events = self._on_lost_answer(ask, error, now_ms)
        if not error.is_retriable:
            return events + self._fail(error)
        if not self.abandons(ask):
            events += self._wait(str(error), now_ms)
        return events + self._conclude(now_ms)

    def _on_lost_answer(self, ask: Ask, error: ClientError, now_ms: int) -> list[Event]:
        if ask.purpose is Purpose.TOPICS:
            self._topics.on_failed(now_ms)
        elif ask.purpose is Purpose.OFFSETS:
            return self._claims.on_offsets({}, 0)
        elif ask.purpose is Purpose.COMMIT:
            return self._not_committed(
                self._take_rows(), error, self._options.commit_timeout_ms, now_ms, is_known=False
            )
        elif self._protocol is not None:
            self._protocol.on_no_answer(ask)
        return []

    def on_unsupported(self, ask: Ask, error: ClientError, now_ms: int) -> list[Event]:
        """The coordinator does not know the request: it was not sent."""
        if self.is_over:
            return []
        if ask is self._leave_ask:
            return self._end([Left()])
        if ask.purpose is not Purpose.MEMBERSHIP or self._protocol is None:
            return self._fail(error)
        verdict = self._protocol.on_unsupported(ask)
        if verdict.outcome is Outcome.FAILED:
            return self._fail(error)
        return self._on_membership(verdict, now_ms) + self._conclude(now_ms)

    def _on_verdict(self, verdict: Verdict, now_ms: int) -> list[Event]:
        """Of anything but success."""
        assert verdict.outcome is not Outcome.DONE
        if verdict.outcome is Outcome.FAILED:
            assert verdict.error is not None
            return self._fail(verdict.error)
        if verdict.outcome is Outcome.OTHER_PROTOCOL:
            return self._change_protocol(verdict)
        self._is_moved |= verdict.outcome is Outcome.MOVED
        events: list[Event] = []
        if verdict.outcome is Outcome.FENCED:
            assert verdict.error is not None
            events = self._lose(verdict.error.code)
        return events + self._wait(str(verdict.error), now_ms)

    def _lose(self, code: ErrorCode) -> list[Event]:
        assert self._protocol is not None
        self._protocol.on_fenced(code)
        self._rows = []
        self._wants_anew = True
        return self._claims.lose()

    def _change_protocol(self, verdict: Verdict) -> list[Event]:
        """The other one may be what the group speaks; if that is refused, too, neither is."""
        is_classic = isinstance(self._protocol, ClassicGroupProtocol)
        present, other = (CLASSIC, CONSUMER) if is_classic else (CONSUMER, CLASSIC)
        self._refused.add(present)
        is_offered = other == CLASSIC or self._offers_consumer
        if self._options.protocol != AUTO or other in self._refused or not is_offered:
            return self._fail(
                verdict.error or UnsupportedByBroker("the coordinator does not offer the group protocol of KIP-848")
            )
        events = self._lose(ErrorCode.UNKNOWN_MEMBER_ID)
        self._protocol = self._new_protocol(other)
        return events

    def _wait(self, reason: str, now_ms: int) -> list[Event]:
        self._retries.wait(now_ms)
        is_long = self._retries.attempts_count == self._attempts_max
        return [Blocked(f"group {self._group_id}: {reason}")] if is_long else []

    def fail(self, error: OttlaError) -> list[Event]:
        """The shell cannot continue."""
        return [] if self.is_over else self._fail(error)

    def abandon(self) -> list[Event]:
        """Nothing more is asked: the coordinator ends the session by its time-out."""
        return [] if self.is_over else self._end(self._claims.lose())

    def _fail(self, error: OttlaError) -> list[Event]:
        return self._end([*self._claims.lose(), Failed(error)])

    def _end(self, events: list[Event]) -> list[Event]:
        self.is_over = True
        return events

    def _on_commit_answer(self, answer: OffsetCommitResponse, now_ms: int) -> list[Event]:
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        events: list[Event] = []
        worst: Verdict | None = None
        for row in self._take_rows():
            code = codes.get(row.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if not code:
                events += self._claims.on_committed(row, self.hand_out_until_ms)
                continue
            verdict = self._commit_verdict(code, row)
            assert verdict.error is not None
            if verdict.outcome is Outcome.FENCED:
                return events + self._on_verdict(verdict, now_ms)
            events += self._not_committed([row], verdict.error, self._commit_retry_ms(verdict), now_ms)
            worst = verdict if worst is None or verdict.outcome is Outcome.MOVED else worst
        if worst is None:
            self._commit_retries.reset()
        elif worst.outcome is Outcome.MOVED:
            events += self._on_verdict(worst, now_ms)
        elif worst.outcome is Outcome.AGAIN:
            self._commit_retries.wait(now_ms)
            assert self._protocol is not None
            assert worst.error is not None
            self._protocol.on_refused_commit(worst.error.code)
            self._wants_anew = True
        return events

    def _commit_verdict(self, code: int, row: CommitRow) -> Verdict:
        return self._of_offsets(code, f"group {self._group_id}, {row.partition}")

    def _commit_retry_ms(self, verdict: Verdict) -> int:
        if verdict.outcome is Outcome.FAILED:
            return 0
        assert verdict.error is not None
        is_unknown_topic = verdict.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return (
            min(_UNKNOWN_TOPIC_WAIT_MS, self._options.commit_timeout_ms)
            if is_unknown_topic
            else (self._options.commit_timeout_ms)
        )

    def _take_rows(self) -> list[CommitRow]:
        rows, self._rows = self._rows, []
        return rows

    def _not_committed(
        self, rows: Iterable[CommitRow], error: OttlaError, retry_ms: int, now_ms: int, *, is_known: bool = True
    ) -> list[Event]:
        until_ms = self.hand_out_until_ms
        return [
            event
            for row in rows
            for event in self._claims.on_not_committed(row, error, retry_ms, now_ms, until_ms, is_known=is_known)
        ]

    def _on_offsets_answer(self, answer: OffsetFetchResponse, now_ms: int) -> list[Event]:
        assert self._protocol is not None
        found: dict[TopicPartition, int] = {}
        verdict = self._of_offsets(group_error_of(answer), f"group {self._group_id}")
        if verdict.outcome is Outcome.DONE:
            for row in offset_rows(answer):
                if row.error_code:
                    verdict = self._of_offsets(row.error_code, f"group {self._group_id}, {row.partition}")
                else:
                    found[row.partition] = NO_OFFSET if row.committed is None else row.committed.offset
        events = self._claims.on_offsets(found, self.hand_out_until_ms)
        if verdict.outcome is Outcome.DONE:
            self._offset_retries.reset()
            return events
        if verdict.outcome is Outcome.AGAIN:
            assert verdict.error is not None
            self._protocol.on_refused_commit(verdict.error.code)
            self._offset_retries.wait(now_ms)
            return events
        return events + self._on_verdict(verdict, now_ms)

    def _of_offsets(self, code: int, subject: str) -> Verdict:
        """Of a request that reads or commits offsets."""
        verdict = verdict_of(code, subject)
        is_fenced = verdict.outcome is Outcome.FENCED or code == ErrorCode.GROUP_ID_NOT_FOUND
        if not is_fenced:
            return verdict
        assert self._protocol is not None
        return verdict._replace(outcome=Outcome.FENCED if self._protocol.can_be_fenced else Outcome.FAILED)

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> list[Event]:
        """Everything below each offset was handed out by that claim, and passed."""
        return [] if self.is_over else self._claims.commit(offsets)

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int, now_ms: int) -> list[Event]:
        """Nothing is handed out any more after `Revoke`; everything below `offset` was passed."""
        if self.is_over:
            return []
        return self._claims.on_stopped(partition, claim, offset, self.hand_out_until_ms) + self._conclude(now_ms)

    def subscribe(self, subscription: Subscription, now_ms: int) -> list[Event]:
        """Read this in place of what was read before.  What the user assigns, and what a group shares out, are of
        different members.
        """
        assert (subscription.partitions is None) == (self._partitions is None), "one kind for each member"
        if self.is_over:
            return []
        self._topics.subscribe(subscription)
        self._partitions = subscription.partitions
        if isinstance(self._protocol, AssignedProtocol) and subscription.partitions is not None:
            self._protocol.assign(subscription.partitions)
            self._wants_anew = True
        return self._conclude(now_ms)

    def leave(self, now_ms: int) -> list[Event]:
        """Give everything back; `Left` is the end."""
        if self.is_over or self._is_leaving:
            return []
        self._is_leaving = self._wants_anew = True
        return self._conclude(now_ms)

    def _on_leave_answer(self, answer: object, now_ms: int) -> list[Event]:
        assert self._protocol is not None
        assert self._leave_ask is not None
        verdict = self._protocol.on_answer(self._leave_ask, answer, now_ms, now_ms)
        if verdict.outcome in (Outcome.AGAIN, Outcome.MOVED):
            self._is_moved |= verdict.outcome is Outcome.MOVED
            return self._on_left_in_vain(now_ms)
        return self._end([Left()])

    def _on_left_in_vain(self, now_ms: int) -> list[Event]:
        self._leave_attempts_count += 1
        if self._leave_attempts_count >= _LEAVE_ATTEMPTS_MAX:
            return self._end([Left()])
        return self._wait("leaving", now_ms)

    def _conclude(self, now_ms: int) -> list[Event]:
        if self.is_over:
            return []
        events: list[Event] = []
        if self._wants_anew and self._protocol is not None:
            self._wants_anew = False
            events += self._want(self._protocol, now_ms)
        if self._is_leaving:
            is_nowhere = self._protocol is None or self._protocol.leave() is None
            return self._end([*events, Left()]) if self._claims.is_empty and is_nowhere else events
        is_settled = self._protocol is not None and self._protocol.is_settled and self._claims.is_at_target
        if is_settled and not self._is_settled:
            events.append(Settled())
        self._is_settled = is_settled
        return events

    def _want(self, protocol: GroupProtocol, now_ms: int) -> list[Event]:
        if not protocol.is_missing_topics(self._topics.ids):
            self._topics.on_found()
        elif self._topics.on_missing(now_ms) and not self._is_leaving:
            # An offset of the former topic must not be committed for the one that has its name now.
            return []
        assigned = {} if self._is_leaving else protocol.assigned(self._topics.ids)
        return self._claims.want(self._by_stream(assigned), protocol.lease_until_ms)

    def _by_stream(self, assigned: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Wanted]:
        """A partition of a topic that is not read here any more is given back."""
        streams = self._claims.streams()
        return {
            (place := TopicPartition(topic, partition)): Wanted(stream, assigned[place])
            for topic, partitions in indexes_by_topic(assigned)
            if topic in self._topics.streams_counts
            for partition, stream in spread(
                partitions, self._topics.streams_counts[topic], self._consumer_id, streams.get(topic, {})
            ).items()
        }


def _is_free(retries: Retries, now_ms: int) -> bool:
    if retries.is_waiting and now_ms < retries.due_ms:
        return False
    retries.on_due()
    return True
