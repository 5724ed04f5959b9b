"""What the consumers for threads and for asyncio share: what is read, and from where; nothing here waits."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeAlias

from typing_extensions import Unpack

from ottla.client.fetching.messages import Message
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.membership import ChangingMembership
from ottla.client.membership.no_group import NoGroup
from ottla.client.streams.connector_core import ConnectorCore, ConnectorHold
from ottla.client.streams.consumer_metrics import ConsumerMetrics
from ottla.client.streams.consumer_settings import ConsumerArguments, ConsumerSettings, consumer_settings
from ottla.client.streams.errors import ConsumerClosed
from ottla.client.streams.log_queries import LogQueries
from ottla.client.streams.reading import CommitOutcome
from ottla.client.streams.rebalance_changes import Changes
from ottla.client.streams.seek_target import Place, Target, target_of
from ottla.client.streams.settings import KeyT, ValueT
from ottla.client.wire.destination.arguments import destination_and_security
from ottla.client.wire.destination.destination import Destination
from ottla.client.wire.other_clients import refuse_mapping
from ottla.client.wire.request_metrics import RequestMeter
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition

# As many as Kafka's consumers return at once.
DEFAULT_MESSAGES_COUNT: Final = 500

OnPartitions: TypeAlias = Callable[[Any, list[TopicPartition]], object]
Offsets: TypeAlias = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]


class Callbacks(NamedTuple):
    """The user's code for changes of the assignment: each is called with the consumer and the partitions."""

    on_assign: OnPartitions | None = None
    on_revoke: OnPartitions | None = None
    on_lost: OnPartitions | None = None

    @property
    def is_any(self) -> bool:
        return self != _NO_CALLBACKS

    def due(self, changes: Changes) -> Iterator[tuple[OnPartitions, list[TopicPartition]]]:
        """The calls for these changes, in order.  Partitions that were lost are revoked where nothing else is given."""
        for call, partitions in (
            (self.on_revoke if self.on_lost is None else self.on_lost, changes.lost),
            (self.on_revoke, changes.revoked),
            (self.on_assign, changes.assigned),
        ):
            if call is not None and partitions:
                yield call, partitions


_NO_CALLBACKS: Final = Callbacks()


class ConsumerSession:
    """What is read from a first `subscribe` or `assign` to `unsubscribe` or `close`."""

    def __init__(
        self,
        consumer: object,
        destination: Destination,
        settings: ConsumerSettings,
        subscription: Subscription,
        callbacks: Callbacks,
    ) -> None:
        streams = settings.streams
        self._membership: ChangingMembership
        group_meter: RequestMeter | None = None
        # Not without a group: `NoGroup` answers each commit, and nothing is committed.
        on_commit: Callable[[Mapping[TopicPartition, int]], object] | None = None
        if settings.group is None:
            self._membership = NoGroup()
        else:
            self._membership = of_group = kafka_group_membership(
                destination, settings.group, settings.of_group, streams.client_options()
            )
            group_meter = of_group.meter
            if settings.interceptors is not None:
                on_commit = settings.interceptors.on_commit
        self._consumer = weakref.ref(consumer)
        self.subscription = subscription
        self.callbacks = callbacks
        self.core = ConnectorCore(
            self._membership,
            lambda: destination,
            streams,
            group=settings.group,
            group_meter=group_meter,
            on_commit=on_commit,
        )
        self.buffer = self.core.open_one(subscription, notifies=callbacks.is_any)
        self.engine = self.core.opened()
        self.hold = ConnectorHold(self.core, repr(consumer))

    @property
    def is_assigned_by_user(self) -> bool:
        return self.subscription.partitions is not None

    def change(self, subscription: Subscription, callbacks: Callbacks) -> None:
        """Read this from now on; what is in both stays."""
        if self.is_assigned_by_user != (subscription.partitions is not None):
            raise ConfigError(
                "partitions are assigned by the user or shared out by the group, not both", hint="unsubscribe() first"
            )
        self.subscription = subscription
        self.callbacks = callbacks
        with self.engine.lock:
            self.buffer.notify(notifies=callbacks.is_any)
        self.engine.forget_places()
        self._membership.subscribe(subscription)

    def assignment(self) -> list[TopicPartition]:
        if self.subscription.partitions is not None:
            return sorted(self.subscription.partitions)
        with self.engine.lock:
            return sorted(each.partition for each in self.buffer.readings.values() if not each.is_stopped)

    def pause(self, partitions: Collection[TopicPartition] | None) -> None:
        """Of these, or of all that are read now."""
        by_user = self.subscription.partitions or ()
        self.engine.pause(self.buffer, partitions if partitions is not None else by_user or None, by_user)

    def resume(self, partitions: Collection[TopicPartition] | None) -> None:
        by_user = self.subscription.partitions or ()
        self.engine.resume(self.buffer, partitions if partitions is not None else by_user or None, by_user)

    def seek(self, partitions: Iterable[TopicPartition] | None, target: Target) -> None:
        """In these, or in all that are read now."""
        by_user = self.subscription.partitions or ()
        if partitions is None and not by_user:
            self.engine.seek(self.buffer, None, target)
            return
        for partition in by_user if partitions is None else partitions:
            if partition in by_user:
                self.engine.start_at(self.buffer, partition, target)
            else:
                self.engine.seek(self.buffer, [partition], target)

    def position(self, partition: TopicPartition) -> int | None:
        if partition in (self.subscription.partitions or ()):
            return self.engine.read_positions(self.buffer).get(partition)
        return self.engine.read_position(self.buffer, partition)

    def positions(self) -> dict[TopicPartition, int | None]:
        started = self.engine.read_positions(self.buffer)
        return {partition: started.get(partition) for partition in sorted(self.subscription.partitions or started)}

    def take_calls(self) -> tuple[Changes, list[Callable[[], object]]]:
        """What has changed, and the user's code that must run for it, before `engine.on_notified`."""
        changes = self.engine.take_changes(self.buffer)
        consumer = self._consumer()

        def bound(call: OnPartitions, partitions: list[TopicPartition]) -> Callable[[], object]:
            return lambda: call(consumer, partitions)

        return changes, [bound(call, partitions) for call, partitions in self.callbacks.due(changes)]


def named_partition(partition: tuple[str, int]) -> TopicPartition:
    """As a user writes it: a TopicPartition, or `(topic, number)`."""
    if not isinstance(partition, tuple) or len(partition) != 2 or not isinstance(partition[0], str):
        raise ConfigError(
            f"{partition!r} is not a partition", hint='write TopicPartition("page-views", 0), or ("page-views", 0)'
        )
    return TopicPartition(*partition)


class ConsumerApi(ABC, Generic[KeyT, ValueT]):
    """See `Consumer` for the settings."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        **settings: Unpack[ConsumerArguments[KeyT, ValueT]],
    ) -> None:
        name = type(self).__name__
        if isinstance(bootstrap, Mapping):
            refuse_mapping(name, bootstrap, {"group", *ConsumerArguments.__annotations__})
        self._destination, settings["security"] = destination_and_security(bootstrap, settings.get("security"))
        self._settings = consumer_settings(name, group, settings)
        self._interceptors = self._settings.interceptors
        self._destination.addresses()
        self._session: ConsumerSession | None = None
        self._is_closed = False
        streams = self._settings.streams
        self._queries = LogQueries(self._destination, streams.client_options(), streams.isolation_level, group)

    def __repr__(self) -> str:
        group = self._settings.group
        of_group = "" if group is None else f" of group {group!r}"
        return f"<{type(self).__name__}{of_group}{', closed' if self._is_closed else ''}>"

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        exclude: str | None = None,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Read these topics, or those whose whole names match `pattern` and not `exclude` (of Python's `re`), as one of
        the group's members; called again, these in place of what was read before.  Returns at once.

        The user's code runs in `poll` and its likes, in a `commit` that waits, and in `close`; each is called with the
        consumer and partitions:

        on_assign   before the first message of them; it may `seek`
        on_revoke   before another member gets them; it may `commit`, by which they are given back
        on_lost     others may have them already; without one `on_revoke` is called

        Raises ConfigError without a group, for no topics, and while partitions are assigned by `assign`.
        """
        if self._settings.group is None:
            raise ConfigError(
                "topics are shared out by a group, and the consumer has none",
                hint='open it with group="its name", or assign() partitions',
            )
        if (topics is None) == (pattern is None):
            raise ConfigError("topics or a pattern must be given, not both", hint='subscribe(["page-views"])')
        if pattern is not None:
            subscription = Subscription({}, TopicFilter(pattern, exclude), 1)
        elif exclude is not None:
            raise ConfigError("exclude is of a pattern", hint="leave the topics out")
        else:
            subscription = Subscription(dict.fromkeys(_names(topics), 1))
        self._read(subscription, Callbacks(on_assign, on_revoke, on_lost))

    def assign(self, partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], Place]) -> None:
        """Read these partitions and no others, without sharing them with a group's members.  Returns at once.

        A mapping gives each its place: an offset, a `datetime`, "earliest" or "latest".  Without one reading starts at
        the group's committed offset, or where `auto_offset_reset` says; partitions that were read before continue.
        With a group offsets are committed to it; the group refuses them while it has members.
        """
        places = partitions if isinstance(partitions, Mapping) else {}
        named = [named_partition(each) for each in partitions]
        if not named:
            raise ConfigError("no partition is given", hint="unsubscribe() reads nothing")
        targets = {named_partition(each): target_of(place, None) for each, place in places.items()}
        session = self._read(Subscription.of_partitions(named), _NO_CALLBACKS)
        for partition, target in targets.items():
            session.seek([partition], target)

    def _read(self, subscription: Subscription, callbacks: Callbacks) -> ConsumerSession:
        self._check_open()
        if self._session is not None:
            self._session.change(subscription, callbacks)
            return self._session
        self._before_session()
        self._session = ConsumerSession(self, self._destination, self._settings, subscription, callbacks)
        self._on_session(self._session)
        return self._session

    def _before_session(self) -> None:
        """A session is opened next; raises what prevents it."""

    @abstractmethod
    def _on_session(self, session: ConsumerSession) -> None:
        """A session was opened."""

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now; with a group's share, as members come and go."""
        return [] if self._session is None else self._session.assignment()

    @property
    def subscription(self) -> list[str]:
        """The topics of `subscribe`; with a pattern those of the assignment."""
        if self._session is None or self._session.is_assigned_by_user:
            return []
        return sorted(self._session.subscription.topics) or sorted({each.topic for each in self.assignment})

    @property
    def paused(self) -> list[TopicPartition]:
        return [] if self._session is None else self._session.engine.paused(self._session.buffer)

    @property
    def blocked_reason(self) -> str | None:
        """Why a rebalance does not end: who holds what; None while there is no such."""
        return None if self._session is None else self._session.engine.blocked_reason

    def pause(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Return no message of these, or of all that are read now, before `resume`.  The place in the group stays.

        What was fetched ahead of them is dropped, and fetched again then.  A partition that moves to another member and
        back is not paused.  Raises NotAssigned.
        """
        self._opened().pause(_named_or_all(partitions))

    def resume(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Continue where these, or all, were paused.  Raises NotAssigned."""
        self._opened().resume(_named_or_all(partitions))

    def seek(self, partition: tuple[str, int], to: Place | None = None, *, timestamp_ms: int | None = None) -> None:
        """Read a partition on from `to`: an offset, a `datetime`, "earliest" or "latest"; or from a timestamp.

        A time is that of the first message which has this timestamp or a later one.  The next message of the partition
        comes from there, and what is committed follows.  Raises NotAssigned: what the group assigns is sought in
        `on_assign`.
        """
        self._opened().seek([named_partition(partition)], target_of(to, timestamp_ms))

    def seek_to_beginning(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """`seek` to "earliest" in these, or in all that are read now."""
        self._opened().seek(_named_or_all(partitions), target_of("earliest", None))

    def seek_to_end(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """`seek` to "latest" in these, or in all that are read now."""
        self._opened().seek(_named_or_all(partitions), target_of("latest", None))

    def skip(self) -> None:
        """Step over the message that cannot be read, or its damaged batch: after a PoisonMessage."""
        session = self._opened()
        session.engine.skip(session.buffer)

    def position(self, partition: tuple[str, int]) -> int | None:
        """The offset of the next message of a partition; None while it is not known yet.  Raises NotAssigned."""
        return self._opened().position(named_partition(partition))

    def positions(self) -> dict[TopicPartition, int | None]:
        """`position` of all partitions that are read now."""
        return self._opened().positions()

    def metrics(self) -> ConsumerMetrics:
        """What was counted since `subscribe` or `assign`: messages, batches, positions and lags, requests, errors."""
        return self._opened().core.metrics()

    def _named(self, partitions: Iterable[tuple[str, int]] | None) -> list[TopicPartition]:
        return self.assignment if partitions is None else [named_partition(each) for each in partitions]

    def _named_times(
        self, times: Mapping[TopicPartition, datetime | int] | Mapping[tuple[str, int], datetime | int]
    ) -> dict[TopicPartition, datetime | int]:
        return {named_partition(partition): time for partition, time in times.items()}

    def _request_commit(self, message: Message[Any, Any] | None, offsets: Offsets | None) -> CommitOutcome:
        session = self._of_group()
        if message is not None and offsets is not None:
            raise ConfigError("a message and offsets were given", hint="give one of both")
        if message is not None:
            offsets = {TopicPartition(message.topic, message.partition): message.offset + 1}
        if offsets is None:
            return session.engine.commit_all(session.buffer)
        named = {named_partition(each): _checked_offset(offset) for each, offset in offsets.items()}
        return session.engine.commit_offsets(session.buffer, named)

    def _of_group(self) -> ConsumerSession:
        self._check_group()
        return self._opened()

    def _check_group(self) -> None:
        if self._settings.group is None:
            raise ConfigError("offsets are committed to a group, and the consumer has none", hint="open it with group=")

    def _opened(self) -> ConsumerSession:
        self._check_open()
        if self._session is None:
            raise ConfigError("nothing is read", hint='subscribe(["page-views"]) or assign([("page-views", 0)]) first')
        return self._session

    def _open_queries(self) -> LogQueries:
        """A query after `close` would open connections that are never closed."""
        self._check_open()
        return self._queries

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosed("the consumer was closed")


def _named_or_all(partitions: Iterable[tuple[str, int]] | None) -> list[TopicPartition] | None:
    return None if partitions is None else [named_partition(each) for each in partitions]


def checked_count(messages_max: int) -> int:
    """Raises ConfigError for what is no count of messages."""
    if isinstance(messages_max, bool) or not isinstance(messages_max, int) or messages_max < 1:
        raise ConfigError(f"max_messages is {messages_max!r}", hint="it is a whole number of at least 1")
    return messages_max


def _names(topics: str | Iterable[str] | None) -> list[str]:
    names = [topics] if isinstance(topics, str) else list(topics or ())
    for name in names:
        if isinstance(name, str) and name.startswith("^"):
            raise ConfigError(f"{name!r} is not a topic's name", hint=f"a pattern: subscribe(pattern={name[1:]!r})")
    return names


def _checked_offset(offset: int) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ConfigError(f"{offset!r} is not an offset", hint="the next one to read: the last message's offset + 1")
    return offset
