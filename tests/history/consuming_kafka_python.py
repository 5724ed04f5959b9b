"""A process that is a member of a classic group through kafka-python, which exposes its generation.

    python -m tests.history.consuming_kafka_python NAME BOOTSTRAP TOPIC GROUP PROTOCOL FILE

`PROTOCOL` is `range`.  SIGTERM makes it leave.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from tests.history.member import RECORDS_PER_POLL_MAX, CommitResult, Member
from tests.history.operations import Outcome
from tests.history.recorder import Recorder
from tests.history.signalled_event import set_on

SESSION_TIMEOUT_MS: Final = 2_000
METADATA_EVERY_MS: Final = 2_000
POLL_MS: Final = 200
REFUSED: Final = (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


class KafkaPythonClient:
    """`GroupClient` of kafka-python."""

    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def commit(self, partition: int, offset: int) -> CommitResult:
        try:
            self._consumer.commit({TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)})
        except REFUSED:
            return CommitResult(Outcome.FAILED)
        except KafkaError as failure:
            return CommitResult(Outcome.UNKNOWN, repr(failure))
        return CommitResult(Outcome.OK)

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        found: dict[int, int] = {}
        for partition in partitions:
            try:
                offset = self._consumer.committed(TopicPartition(self._topic, partition), timeout_ms=5_000)
            except KafkaError:
                return None
            found[partition] = -1 if offset is None else offset
        return found

    def high_watermark(self, partition: int) -> int | None:
        told: int | None = self._consumer.highwater(TopicPartition(self._topic, partition))
        return told

    def generation(self) -> int:
        generation: int = self._consumer.group_metadata().generation_id
        return generation


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Called on the library's own thread, which must not send requests: so no commit at a revocation."""

    def __init__(self, member: Member, consumer: KafkaConsumer) -> None:
        self._member = member
        self._consumer = consumer
        self.newly_given: list[int] = []

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.newly_given = []
        self._member.lost([partition.partition for partition in revoked])
        # kafka-python 3.0 keeps a revoked partition's position until the rebalance ends, and continues from there when
        # it gets the partition back.  When the rebalance takes several generations, another member may have read and
        # committed beyond that position meanwhile.  Java's client forgets positions here, and so does this member.
        self._consumer._subscription.assign_from_subscribed([])
        # It also keeps the response to an OffsetFetch that it gave up, and takes it for the response to
        # the next one about the same partitions, in any later generation.
        self._consumer._coordinator._offset_fetch_futures.clear()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.newly_given = [partition.partition for partition in assigned]
        self._member.given(self.newly_given)


def poll(consumer: KafkaConsumer, member: Member) -> None:
    """Read once.  While its broker is down the library raises what it would retry: then nothing was read."""
    member.begin_poll()
    try:
        polled = consumer.poll(POLL_MS, max_records=RECORDS_PER_POLL_MAX)
    except KafkaError as failure:
        if not failure.retriable:
            raise
        polled = {}
    for partition, records in polled.items():
        for record in records:
            member.got(partition.partition, record.offset, record.value)
    member.end_poll()


def main(name: str, bootstrap: str, topic: str, group: str, protocol: str, file: str) -> None:
    assert protocol == "range", f"kafka-python members use the range assignor, not {protocol}"
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    # Its view of the group, shown when the member ends or idles.
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.WARNING)
    logging.getLogger("kafka.coordinator").setLevel(logging.INFO)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        reconnect_backoff_max_ms=200,
        # The topic may grow.
        metadata_max_age_ms=METADATA_EVERY_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    with Recorder(Path(file)) as recorder:
        member = Member(name, KafkaPythonClient(consumer, topic), recorder)
        listener = Listener(member, consumer)
        consumer.subscribe([topic], listener=listener)
        while not stopping.is_set():
            poll(consumer, member)
            member.read_committed(listener.newly_given)
            listener.newly_given = []
            member.commit_sometimes()
        consumer.close()


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE)
