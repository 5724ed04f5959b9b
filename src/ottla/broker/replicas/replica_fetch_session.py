"""The follower's side of a fetch session (KIP-227): after the first request each one names only what changed.  Pure."""

from __future__ import annotations

from ottla.protocol.fetch import (
    FIRST_SESSION_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    FetchPartition,
    next_session_epoch,
)

TopicFetches = list[tuple[bytes, list[FetchPartition]]]
TopicIndexes = list[tuple[bytes, list[int]]]
PartitionKey = tuple[bytes, int]
"""Topic id, partition index."""


class ReplicaFetchSession:
    """What is requested from the leader, and how much of that it knows already.

    `put` and `forget` change the requests, also while a request is under way.  Each `request` is followed by
    `on_response`, or by `restart` when its response is lost: the leader's side is unknown then, and the next request
    names everything.
    """

    __slots__ = ("_changed", "_epoch", "_fetches", "_forgotten", "_id")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = NEW_SESSION_EPOCH
        # By key, in the order in which they are read: one that gave records goes to the end, so that all get a turn.
        self._fetches: dict[PartitionKey, FetchPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    def __len__(self) -> int:
        return len(self._fetches)

    def put(self, key: PartitionKey, fetch: FetchPartition) -> None:
        """Ask for a partition at this position, from the next request on."""
        if self._fetches.get(key) == fetch:
            return
        self._fetches.pop(key, None)
        self._fetches[key] = fetch
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def move_log_start(self, key: PartitionKey, log_start_offset: int) -> None:
        """Send the start of the follower's log with the next request; the position is as it was."""
        fetch = self._fetches.get(key)
        if fetch is not None and fetch[4] != log_start_offset:
            self._fetches[key] = (*fetch[:4], log_start_offset, fetch[5])
            self._changed[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Ask for it no more."""
        if self._fetches.pop(key, None) is None:
            return
        self._changed.pop(key, None)
        self._forgotten[key] = None

    def restart(self) -> None:
        """Begin another session with the next request; it closes the present one."""
        self._epoch = NEW_SESSION_EPOCH

    def request(self) -> tuple[int, int, TopicFetches, TopicIndexes]:
        """Session id, session epoch, partitions to add or change, partitions to remove."""
        changed, self._changed = self._changed, {}
        removed, self._forgotten = self._forgotten, {}
        if self._epoch == NEW_SESSION_EPOCH:
            return self._id, NEW_SESSION_EPOCH, _by_topic(self._fetches), []
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in removed:
            forgotten.setdefault(topic_id, []).append(index)
        return self._id, self._epoch, _by_topic({key: self._fetches[key] for key in changed}), list(forgotten.items())

    def on_response(self, session_id: int) -> None:
        """The request was answered without an error; the leader gave this session id, 0 when it keeps no session."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, NEW_SESSION_EPOCH
            return
        if self._epoch == NEW_SESSION_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, FIRST_SESSION_EPOCH
        else:
            self._epoch = next_session_epoch(self._epoch)


def _by_topic(fetches: dict[PartitionKey, FetchPartition]) -> TopicFetches:
    topics: dict[bytes, list[FetchPartition]] = {}
    for (topic_id, _), fetch in fetches.items():
        topics.setdefault(topic_id, []).append(fetch)
    return list(topics.items())
