"""A process that is a member of a classic group through aiokafka, which exposes its generation.

    python -m tests.history.consuming_aiokafka NAME BOOTSTRAP TOPIC GROUP PROTOCOL FILE

`PROTOCOL` is `range`.  SIGTERM makes it leave.  Any error except that of a late commit ends it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError

from tests.history.member import RECORDS_PER_POLL_MAX, CommitResult, RecordedMember
from tests.history.operations import Outcome
from tests.history.recorder import Recorder, now_ns

SESSION_TIMEOUT_MS: Final = 2_000
POLL_MS: Final = 200


class KnownToAiokafka:
    """`KnownToClient` of aiokafka."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def high_watermark(self, partition: int) -> int | None:
        told: int | None = self._consumer.highwater(TopicPartition(self._topic, partition))
        return told

    def generation(self) -> int:
        # There is no public name for it.
        generation: int = self._consumer._coordinator.generation
        return generation


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Polls and commits; the library calls it back on the same loop, between these."""

    def __init__(self, name: str, consumer: AIOKafkaConsumer, topic: str, recorder: Recorder) -> None:
        self._consumer = consumer
        self._topic = topic
        self._member = RecordedMember(name, KnownToAiokafka(consumer, topic), recorder)
        self._newly_given: list[int] = []
        # The library retries a commit after a rebalance with the new generation: so a rebalance waits for the commit.
        self._committing = asyncio.Lock()
        # The library only logs what a callback raises.
        self._failure: Exception | None = None

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        partitions = [place.partition for place in revoked]
        try:
            await self._commit(partitions)
        except Exception as failure:
            self._failure = failure
            raise
        self._member.lost(partitions)
        self._newly_given = []

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._newly_given = [place.partition for place in assigned]
        self._member.given(self._newly_given)

    async def step(self) -> None:
        """Read once; then query the committed offsets of new partitions, and commit sometimes."""
        if self._failure is not None:
            raise self._failure
        self._member.begin_poll()
        polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_PER_POLL_MAX)
        for place, records in polled.items():
            for record in records:
                self._member.got(place.partition, record.offset, record.value)
        self._member.end_poll()
        newly_given, self._newly_given = self._newly_given, []
        for partition in newly_given:
            invoked_ns = now_ns()
            offset = await self._consumer.committed(TopicPartition(self._topic, partition))
            self._member.told_committed(invoked_ns, {partition: -1 if offset is None else offset})
        await self._commit(self._member.to_commit_now())

    async def _commit(self, partitions: Iterable[int]) -> None:
        async with self._committing:
            for partition in partitions:
                offset = self._member.next_offset(partition)
                if offset is None:
                    continue
                invoked_ns = self._member.begin_commit(partition, offset)
                try:
                    await self._consumer.commit({TopicPartition(self._topic, partition): offset})
                except CommitFailedError:
                    outcome = Outcome.FAILED
                else:
                    outcome = Outcome.OK
                self._member.tried_commit(invoked_ns, CommitResult(outcome), partition, offset)


async def run(name: str, bootstrap: str, topic: str, group: str, recorder: Recorder, stopping: asyncio.Event) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    member = AiokafkaMember(name, consumer, topic, recorder)
    consumer.subscribe([topic], listener=member)
    await consumer.start()
    while not stopping.is_set():
        await member.step()
    await consumer.stop()


async def main(name: str, bootstrap: str, topic: str, group: str, protocol: str, file: str) -> None:
    assert protocol == "range", f"aiokafka members use the range assignor, not {protocol}"
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    with Recorder(Path(file)) as recorder:
        await run(name, bootstrap, topic, group, recorder, stopping)


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE = sys.argv
    asyncio.run(main(NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE))
