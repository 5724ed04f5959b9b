"""A partition as this broker serves it: its log, its high watermark, and who waits for it to move.

Waiting produces are kept in append order and released by one comparison each when the high watermark moves;
no task, future or timer for any of them.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ottla.broker.batch_opening import opening_of
from ottla.model.identifiers import TopicPartition
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig


class WaitingProduce(Protocol):
    """A produce request that waits for some of its partitions."""

    def on_stable(self, slot: int) -> None:
        """The batch of this slot is below the high watermark."""
        ...

    def on_failed(self, slot: int, error_code: int) -> None:
        """The batch of this slot will not become stable on this broker."""
        ...

    def is_late(self, now_ms: int) -> bool:
        """Whether its time-out has passed, by the monotonic clock, and it still waits."""
        ...

    def on_late(self) -> None:
        """Its time-out has passed: it waits no more."""
        ...


class WaitingFetch(Protocol):
    """A fetch request that waits for records in some of its partitions."""

    def on_readable(self) -> None:
        """The high watermark of one of its partitions moved."""
        ...


class Partition:
    """One partition on its leader.

    `high_watermark` is exclusive, and with one replica it is the log's stable end (docs/invariants.md).
    """

    __slots__ = (
        "_waiting_fetches",
        "_waiting_produces",
        "high_watermark",
        "index",
        "is_served",
        "leader_epoch",
        "log",
        "name_bytes",
        "opening",
        "topic_id_bytes",
        "topic_partition",
    )

    def __init__(self, log: Log, leader_epoch: int) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.name_bytes = log.topic_partition.topic.encode()
        self.topic_id_bytes = log.topic_id.bytes
        self.index = log.topic_partition.partition
        self.leader_epoch = leader_epoch
        # What forces produced batches to be opened, as a rule nothing.
        self.opening = opening_of(log.config)
        # False once it has left this broker: whoever still holds it must not read on.
        self.is_served = True
        self.high_watermark = log.stable_end
        self._waiting_produces: deque[tuple[int, WaitingProduce, int]] = deque()
        self._waiting_fetches: dict[WaitingFetch, None] = {}
        log.on_stable = self._on_stable

    @property
    def has_waiting_produces(self) -> bool:
        return bool(self._waiting_produces)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings; they hold for the next request."""
        self.log.update_config(config)
        self.opening = opening_of(config)

    def park_produce(self, required_end: int, produce: WaitingProduce, slot: int) -> None:
        """Release `slot` of `produce` once the high watermark reaches `required_end`.

        Batches are parked in append order.  A duplicate asks for an end that is not above its predecessors':
        it is released with them, which is later than needed by at most one flush.
        """
        assert required_end > self.high_watermark
        self._waiting_produces.append((required_end, produce, slot))

    def park_fetch(self, fetch: WaitingFetch) -> None:
        self._waiting_fetches[fetch] = None

    def forget_fetch(self, fetch: WaitingFetch) -> None:
        self._waiting_fetches.pop(fetch, None)

    def advance(self) -> None:
        """Move the high watermark to the stable end and release who waited for that."""
        stable_end = self.log.stable_end
        if stable_end <= self.high_watermark:
            return
        self.high_watermark = stable_end
        waiting = self._waiting_produces
        while waiting and waiting[0][0] <= stable_end:
            _, produce, slot = waiting.popleft()
            produce.on_stable(slot)
        if self._waiting_fetches:
            for fetch in list(self._waiting_fetches):
                fetch.on_readable()

    def expire_late(self, now_ms: int) -> None:
        """Answer the produces whose time-out has passed, by the monotonic clock.

        They stay queued: released later, they find it done.
        """
        for _, produce, _ in list(self._waiting_produces):
            if produce.is_late(now_ms):
                produce.on_late()

    def fail_waiting(self, error_code: int) -> None:
        """Answer everything that waits: the log's directory failed, or the partition leaves this broker."""
        waiting, self._waiting_produces = self._waiting_produces, deque()
        for _, produce, slot in waiting:
            produce.on_failed(slot, error_code)
        self.tell_fetches()

    def tell_fetches(self) -> None:
        """Something that readers are told of has changed."""
        for fetch in list(self._waiting_fetches):
            fetch.on_readable()

    def _on_stable(self, _: Log) -> None:
        self.advance()
