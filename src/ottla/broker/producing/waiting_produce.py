"""A produce request that waits for the acknowledgement of its batches, and its answer."""

from __future__ import annotations

from time import perf_counter
from typing import Final, NamedTuple

from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import PARTITIONS_OF_STEP, PIPELINED_PARTITIONS_MAX
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_meter import SlowRequests
from ottla.broker.net.request_tasks import RequestTasks
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.produce import (
    LEADERS_FROM_VERSION,
    ProducePartitionResult,
    refusal_of,
    write_produce_response,
    write_produce_response_steps,
)
from ottla.runtime.loop_offload import paced
from ottla.runtime.steps import Steps, parts_of

TopicResult = tuple[bytes, list[ProducePartitionResult]]

_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class ProduceShared(NamedTuple):
    """What all produce requests use to answer."""

    ready: ReadyConnections
    leader_hints: LeaderHints | None
    slow: SlowRequests | None
    tasks: RequestTasks

    def leaders(self, version: int, topics: list[TopicResult], connection: Connection) -> CurrentLeaders | None:
        """The leaders of those partitions that were refused since another broker leads them."""
        hints = self.leader_hints
        if hints is None or version < LEADERS_FROM_VERSION:
            return None
        refused = ((name, result[0]) for name, results in topics for result in results if result[1] == _NOT_LEADER)
        return hints.by_name(refused, connection.local_address)


class WaitingProduce:
    """A produce request of which some batches cannot be acknowledged yet."""

    __slots__ = (
        "_answer",
        "_correlation_id",
        "_deadline_ms",
        "_has_failed",
        "_shared",
        "_slots",
        "_started_s",
        "_throttle_ms",
        "_topics",
        "_version",
        "_waits_for",
    )

    def __init__(
        self,
        shared: ProduceShared,
        correlation_id: int,
        version: int,
        deadline_ms: int,
        topics: list[TopicResult],
        throttle_ms: int,
    ) -> None:
        self._shared = shared
        self._started_s = perf_counter()
        self._correlation_id = correlation_id
        self._version = version
        self._deadline_ms = deadline_ms
        self._throttle_ms = throttle_ms
        self._answer: Answer | None = None
        # The results of all partitions, which the handler still fills.
        self._topics = topics
        # (topic, partition) places in `_topics`, by slot; None where the outcome is known.
        self._slots: list[tuple[int, int] | None] = []
        self._waits_for = 0
        self._has_failed = False

    def add_slot(self, topic_place: int, partition_place: int) -> int:
        """Wait for one more batch; returns its slot."""
        self._slots.append((topic_place, partition_place))
        self._waits_for += 1
        return len(self._slots) - 1

    @property
    def waits(self) -> bool:
        """False when all its batches were released or failed before it was parked: the disk failed at the last."""
        return self._waits_for > 0

    def park(self, answer: Answer, failure: int) -> None:
        """Wait with the request's answer; `failure`: the error that some partition has already, if any."""
        self._answer = answer
        if failure:
            self._has_failed = True

    def is_expired(self, now_ms: int) -> bool:
        # Not before it was parked: its handler may still add batches.
        return self._waits_for > 0 and now_ms >= self._deadline_ms and self._answer is not None

    def release(self, slot: int) -> None:
        if self._waits_for == 0:
            return  # it expired and has been answered
        self._waits_for -= 1
        self._slots[slot] = None
        if self._waits_for == 0:
            self._complete()

    def fail(self, slot: int, error_code: int) -> None:
        if self._waits_for == 0:
            return
        self._has_failed = True
        self._set_error(slot, error_code)
        self.release(slot)

    def expire(self) -> None:
        """Answer now, with an error for the batches that still wait; their release does nothing later."""
        self._waits_for = 0
        self._has_failed = True
        self._complete()

    def _set_error(self, slot: int, error_code: int) -> None:
        place = self._slots[slot]
        if place is not None:
            results = self._topics[place[0]][1]
            results[place[1]] = refusal_of(results[place[1]][0], error_code)

    def _complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.connection.is_closed:
            return
        connection, shared = answer.connection, self._shared
        slow = shared.slow
        if slow is not None and (took_s := perf_counter() - self._started_s) > slow.limit_s:
            slow.note(connection, ApiKey.PRODUCE, self._version, flush=took_s)
        if len(self._slots) > PIPELINED_PARTITIONS_MAX:
            shared.tasks.start(connection, self._answer_paced(answer))
            return
        leaders = None
        if self._has_failed:
            for slot in range(len(self._slots)):
                self._set_error(slot, _TIMED_OUT)
            leaders = shared.leaders(self._version, self._topics, connection)
        response = write_produce_response(self._correlation_id, self._version, self._topics, leaders, self._throttle_ms)
        answer.complete((response,))
        shared.ready.add(connection)

    async def _answer_paced(self, answer: Answer) -> None:
        connection, shared = answer.connection, self._shared
        frame = await paced(self._response_steps(connection))
        if not connection.is_closed:
            answer.complete((frame,))
            shared.ready.add(connection)

    def _response_steps(self, connection: Connection) -> Steps[bytearray]:
        leaders = None
        if self._has_failed:
            for slots in parts_of(range(len(self._slots)), PARTITIONS_OF_STEP):
                for slot in slots:
                    self._set_error(slot, _TIMED_OUT)
                yield
            leaders = self._shared.leaders(self._version, self._topics, connection)
        return (
            yield from write_produce_response_steps(
                self._correlation_id, self._version, self._topics, leaders, self._throttle_ms
            )
        )
