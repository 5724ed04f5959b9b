"""Events of one part of the broker that other parts act on.

The part that reports an event is constructed before those that act on it: it gets the `Event` to call, and each of the
others subscribes when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, ParamSpec

from ottla.broker.partitions.partition import Partition
from ottla.coordination.configs import ConfigsView
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.storage.errors import DirectoryOffline
from ottla.storage.log.log import Log

P = ParamSpec("P")


class Event(Generic[P]):
    """Called with the event; calls its subscribers in the order in which they subscribed."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, act: Callable[P, object]) -> None:
        self._subscribers.append(act)

    def __call__(self, *event: P.args, **named: P.kwargs) -> None:
        for act in self._subscribers:
            act(*event, **named)


class BrokerEvents:
    """All events of one broker, on the event loop's thread."""

    def __init__(self) -> None:
        # The session with the tree has ended, and with it this broker's registration.
        self.session_lost: Final[Event[[]]] = Event()
        self.directory_offline: Final[Event[[DirectoryOffline]]] = Event()
        # The disk is stuck or long full, or is no longer.
        self.disk_changed: Final[Event[[]]] = Event()
        self.log_damaged: Final[Event[[Log]]] = Event()
        self.log_start_moved: Final[Event[[Log]]] = Event()
        # See `TopicsObserver`.
        self.topic_changed: Final[Event[[str, Topic | None]]] = Event()
        self.roles_changed: Final[Event[[Sequence[Partition]]]] = Event()
        self.configs_changed: Final[Event[[ConfigsView]]] = Event()
        self.topics_followed: Final[Event[[TopicsView]]] = Event()
