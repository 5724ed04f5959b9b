"""Looks topics up without waiting, for the loops that send and fetch: a broker that does not answer must not keep them
from the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.wire.address import Address
from ottla.client.wire.connection import Connection, Sent
from ottla.client.wire.connection_pool import ConnectionPool, none_reached
from ottla.client.wire.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CallTimedOut,
    ClientError,
    ConnectionLost,
    UnknownTopic,
)
from ottla.client.wire.metadata import MetadataCache, PartitionInfo, TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline, Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.runtime.clock import Clock

# A broker that has not answered for so long is not given up, but another one is queried beside it.
SILENT_AFTER_MS: Final = 1_000
# Metadata v0 cannot ask for no topic at all.
METADATA_VERSION_MIN: Final = 1
# A caller that still waits for a topic wants it again within this time after a failure, or within twice the longest
# pause of retries.
WANTED_AGAIN_MS: Final = 2_000
MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(slots=True, eq=False)
class _Attempt:
    """A query of one broker; `connection` None: it is being opened."""

    address: Address
    connection: Connection | None = None
    sent: Sent | None = None
    within: Deadline | None = None
    topics: Collection[str] = ()
    # Those whose metadata has become stale since the request.
    stale: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Round:
    """Each broker is tried once.  After `next_at` the next one is, beside those that are silent."""

    untried: deque[Address]
    next_at: Deadline
    failures: list[ClientError] = field(default_factory=list)


class _Failure(NamedTuple):
    """Until `until` every partition of the topic has this error, without a request: each would get the same."""

    error: ClientError
    until: Deadline


@dataclass(slots=True)
class _Missing:
    """A topic that may just have been created may be missing until `until`.  The caller that wants it again only after
    `wanted_by` is another one, and has the whole time."""

    until: Deadline
    wanted_by: Deadline


class TopicLookUps:
    """`topic` and `leader` answer from the cluster's metadata, or return None and have the topic in the next request.

    The loop calls `poll` in each round, and waits for `streams` beside its own, at most `wait_ms`.  One request is for
    all topics that are wanted.  When a broker is silent for a second, the next one is queried, too, and the first
    response counts.  No broker is given up for that: a line that is slower than a second has the time-outs of a
    connection and a request.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        pool: ConnectionPool,
        addresses: Callable[[], Iterable[Address]],
        with_hint: Callable[[BrokerUnreachable], BrokerUnreachable],
        retrying: Retrying,
        options: ClientOptions,
        clock: Clock,
    ) -> None:
        """`addresses`: of all brokers; `with_hint` adds to the error of a cluster that cannot be reached."""
        self._metadata = metadata
        self._pool = pool
        self._addresses = addresses
        self._with_hint = with_hint
        self._retrying = retrying
        self._options = options
        self._clock = clock
        # With whether they may be created.
        self._wanted: dict[str, bool] = {}
        self._attempts: list[_Attempt] = []
        self._round: _Round | None = None
        self._failures: dict[str, _Failure] = {}
        self._missing: dict[str, _Missing] = {}
        self._wanted_again_ms = max(WANTED_AGAIN_MS, 2 * options.retry_backoff_max_ms)
        # Partitions that the metadata did not have: it is refreshed once for each, when a caller wants it.
        self._unknown: set[TopicPartition] = set()
        self._has_news = False

    def topic(self, name: str, *, allow_auto_topic_creation: bool = False) -> TopicInfo | None:
        """The topic; None while it is looked up.

        Raises why there is none, as a retriable error unless waiting does not change it: UnknownTopic after
        `unknown_topic_wait_ms`.
        """
        known = self._metadata.topic(name, self._clock.monotonic_ms())
        if known is not None:
            return known
        failure = self._failures.get(name)
        if failure is not None:
            if not failure.until.has_passed:
                raise failure.error.with_traceback(None)
            del self._failures[name]
        problem = topic_name_problem(name)
        if problem is not None:
            raise UnknownTopic(problem, hint="topic names have 1 to 249 ASCII letters, digits, '.', '_' and '-'")
        self._want(name, may_create=allow_auto_topic_creation)
        return None

    def _want(self, name: str, *, may_create: bool) -> None:
        if name not in self._wanted:
            missing = self._missing.get(name)
            if missing is not None and missing.wanted_by.has_passed:
                del self._missing[name]
            self._wanted[name] = may_create

    def leader(self, partition: TopicPartition, *, allow_auto_topic_creation: bool = False) -> PartitionInfo | None:
        """The partition with its leader, as `topic`; a retriable error while it has no leader."""
        topic = self.topic(partition.topic, allow_auto_topic_creation=allow_auto_topic_creation)
        if topic is None:
            return None
        if partition.partition not in topic.partitions and not self._was_refreshed_for(partition):
            self._unknown.add(partition)  # partitions may have been added since
            self.forget([partition.topic])
            self._want(partition.topic, may_create=allow_auto_topic_creation)
            return None
        self._unknown.discard(partition)
        return led_partition(topic, partition, self.forget)

    def _was_refreshed_for(self, partition: TopicPartition) -> bool:
        age_ms = self._metadata.age_ms(partition.topic, self._clock.monotonic_ms())
        return partition in self._unknown and age_ms < self._wanted_again_ms

    def forget(self, topics: Iterable[str]) -> None:
        """The metadata of these is stale, also that of a response on its way.  What was stale already has been
        requested since."""
        now_ms = self._clock.monotonic_ms()
        known = [name for name in topics if self._metadata.topic(name, now_ms) is not None]
        self._metadata.forget(known)
        for attempt in self._attempts:
            attempt.stale.update(known)

    def renew(self, topic: str) -> None:
        """What is known of it is not new enough, the reason of a failure neither."""
        self.forget([topic])
        self._failures.pop(topic, None)

    def streams(self) -> list[Connection]:
        """What to wait for; then `poll`."""
        connections = (attempt.connection or self._pool.opening(attempt.address) for attempt in self._attempts)
        return [each for each in connections if each is not None and each.is_open]

    def wait_ms(self, limit_ms: float) -> float:
        """How long to wait for the streams; at most `limit_ms`."""
        next_ms = [] if self._round is None else [self._round.next_at.remaining_ms]
        late_ms = (attempt.within.remaining_ms for attempt in self._attempts if attempt.within is not None)
        steps_ms = (each.opening_wait_ms for each in self.streams())
        return min([limit_ms, *next_ms, *late_ms, *steps_ms])

    def poll(self) -> bool:
        """Take what has arrived, and query for what is wanted.  Whether `topic` has another answer now."""
        self._has_news = False
        for attempt in list(self._attempts):
            if attempt in self._attempts:  # the response of another one may have ended it
                self._advance(attempt)
        while self._wanted and self._continue():
            pass
        return self._has_news

    def _continue(self) -> bool:
        """Query the next broker if it is its turn; whether to look again."""
        if self._round is None:
            self._drop_outdated()
            busy = {attempt.address for attempt in self._attempts}
            untried = deque(each for each in self._pool.in_order(self._addresses()) if each not in busy)
            self._round = _Round(untried, self._retrying.deadline(0 if untried else SILENT_AFTER_MS))
        present = self._round
        if self._attempts and not present.next_at.has_passed:
            return False
        if not present.untried:
            self._fail(self._none_has_answered(present))
            return False
        for silent in self._attempts:
            opening = self._pool.opening(silent.address)
            if opening is not None:
                opening.count_as_silent()
        attempt = _Attempt(present.untried.popleft())
        self._attempts.append(attempt)
        present.next_at = self._retrying.deadline(SILENT_AFTER_MS)
        self._advance(attempt)
        return True

    def _advance(self, attempt: _Attempt) -> None:
        try:
            response = self._response_to(attempt)
        except ClientError as error:
            self._attempts.remove(attempt)
            if self._round is not None:
                self._round.failures.append(error)
            if not error.is_retriable:
                self._fail(error)
            return
        if response is not None:
            self._attempts.remove(attempt)
            self._on_response(attempt, response)

    def _response_to(self, attempt: _Attempt) -> MetadataResponse | None:
        if attempt.connection is None:
            connection = self._pool.poll(attempt.address)
            if connection is not None:
                self._send(attempt, connection)
            return None
        assert attempt.sent is not None, "it is sent when its connection is open"
        assert attempt.within is not None, "it is sent with a time-out"
        connection = attempt.connection
        try:
            body = connection.try_response(attempt.sent)
            if body is not None:
                return connection.decode(attempt.sent.api, attempt.sent.version, body, MetadataResponse)
            if attempt.within.has_passed:
                late = CallTimedOut(f"{attempt.address} did not answer METADATA in time")
                connection.close(late)
                raise late
            return None
        except WireError as error:
            raise ConnectionLost(f"the response of {attempt.address} cannot be read: {error}") from error

    def _send(self, attempt: _Attempt, connection: Connection) -> None:
        if not self._wanted:  # it was opened too late
            self._attempts.remove(attempt)
            return
        may_create = next(iter(self._wanted.values()), False)
        attempt.topics = [name for name, each in self._wanted.items() if each == may_create]
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in attempt.topics], allow_auto_topic_creation=may_create
        )
        attempt.stale.clear()
        attempt.within = self._retrying.deadline(self._options.request_timeout_ms)
        version = connection.version_of(ApiKey.METADATA, at_least=METADATA_VERSION_MIN)
        body = [encode_request(ApiKey.METADATA, version, request)]
        attempt.sent = connection.send(ApiKey.METADATA, version, body, attempt.within)
        attempt.connection = connection

    def _on_response(self, attempt: _Attempt, response: MetadataResponse) -> None:
        found = {topic.name: topic for topic in self._metadata.apply(response, self._clock.monotonic_ms())}
        self._has_news = True
        self._metadata.forget(attempt.stale)
        for name in attempt.topics:
            if name not in attempt.stale:
                self._wanted.pop(name, None)
                code = found[name].error_code if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._settle(name, code)
        for other in list(self._attempts):
            if other.connection is not None:
                # It has been silent while this one answered; nothing else can be read from it first.
                other.connection.close(CallTimedOut(f"{other.address} did not answer METADATA in time"))
                self._attempts.remove(other)
        self._round = None

    def _settle(self, name: str, code: ErrorCode) -> None:
        if code not in MISSING:
            self._missing.pop(name, None)
            if code:
                self._fail_topic(name, BrokerRefused(code, f"topic {name}"))
            return
        until = self._retrying.deadline(self._options.unknown_topic_wait_ms)
        missing = self._missing.setdefault(name, _Missing(until, until))
        if missing.until.has_passed:
            del self._missing[name]
            self._fail_topic(name, UnknownTopic(f"topic {name} does not exist"))
        else:
            self._fail_topic(name, BrokerRefused(code, f"topic {name}"))

    def _drop_outdated(self) -> None:
        """Of topics that callers have ceased to want."""
        self._failures = {name: each for name, each in self._failures.items() if not each.until.has_passed}
        self._missing = {
            name: each for name, each in self._missing.items() if name in self._wanted or not each.wanted_by.has_passed
        }

    def _none_has_answered(self, present: _Round) -> ClientError:
        silent = [CallTimedOut(f"{each.address} did not answer in time") for each in self._attempts]
        failures = [*present.failures, *silent]
        if len(failures) == 1:
            error = failures[0]
            return self._with_hint(error) if isinstance(error, BrokerUnreachable) else error
        return self._with_hint(none_reached(failures))

    def _fail(self, error: ClientError) -> None:
        """Of all topics that are wanted.  Attempts continue: a late response is used."""
        for name in self._wanted:
            self._fail_topic(name, error)
        self._wanted.clear()
        self._round = None

    def _fail_topic(self, name: str, error: ClientError) -> None:
        self._has_news = True
        until = self._retrying.deadline(self._options.retry_backoff_ms)
        self._failures[name] = _Failure(error, until)
        if name in self._missing:
            self._missing[name].wanted_by = self._retrying.deadline(self._wanted_again_ms)


def led_partition(
    topic: TopicInfo, partition: TopicPartition, forget: Callable[[Iterable[str]], None]
) -> PartitionInfo:
    """The partition in the metadata of its topic.  Raises UnknownTopic, or a retriable error where it has no leader:
    then the metadata is forgotten."""
    found = topic.partitions.get(partition.partition)
    if found is None:
        hint = f"its partitions are 0 to {len(topic.partitions) - 1}"
        raise UnknownTopic(f"topic {topic.name} has no partition {partition.partition}", hint=hint)
    if found.leader_id < 0:
        forget([partition.topic])
        raise BrokerRefused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition), "no broker leads it now")
    return found
