"""What a consumer can learn of logs and of its group's offsets, on connections that its reading does not use."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from ottla.client.fetching.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from ottla.client.groups.groups import GroupAdmin
from ottla.client.streams.seek_target import timestamp_ms_of
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.destination.destination import Bootstrap
from ottla.client.wire.options import ClientOptions
from ottla.model.identifiers import NO_OFFSET, TopicPartition

_CLOSE_WAIT_S: Final = 1.0


class LogQueries:
    """Blocking; several threads take turns.  Every method raises ClientError after `call_timeout_ms` of retries."""

    def __init__(
        self, bootstrap: Bootstrap, options: ClientOptions, isolation: IsolationLevel, group: str | None
    ) -> None:
        self._cluster = Cluster(bootstrap, options)
        self._isolation = isolation
        self._group = group
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections, except those of a query that another thread waits for."""
        if self._lock.acquire(timeout=_CLOSE_WAIT_S):
            try:
                self._cluster.close()
            finally:
                self._lock.release()

    def topics(self) -> list[str]:
        with self._lock:
            return sorted(topic.name for topic in self._cluster.refresh(None) if not topic.error_code)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        with self._lock:
            self._cluster.forget([topic])
            return [TopicPartition(topic, number) for number in self._cluster.partitions(topic)]

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Mapping[TopicPartition, datetime | int]) -> dict[TopicPartition, int | None]:
        found = self._offsets({partition: timestamp_ms_of(time) for partition, time in times.items()})
        return {partition: None if offset == NO_OFFSET else offset for partition, offset in found.items()}

    def _offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not questions:
            return {}
        with self._lock:
            answers = list_offsets(self._cluster, questions, isolation=self._isolation)
        return {partition: answer.offset for partition, answer in answers.items()}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        assert self._group is not None, "a consumer without a group commits nothing"
        if not partitions:
            return {}
        with self._lock:
            found = GroupAdmin(self._cluster).committed(self._group, partitions)
        return {partition: found[partition].offset if partition in found else None for partition in partitions}

    def lags(self, positions: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int | None]:
        ends = self.ends([partition for partition, position in positions.items() if position is not None])
        return {
            partition: None if position is None else max(0, ends[partition] - position)
            for partition, position in positions.items()
        }
