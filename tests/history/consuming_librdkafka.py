"""A process that is a member of a group through librdkafka.

    python -m tests.history.consuming_librdkafka NAME BOOTSTRAP TOPIC GROUP PROTOCOL FILE

`PROTOCOL` is `range`, `cooperative-sticky` (both classic) or `consumer` (KIP-848).  SIGTERM makes it leave, SIGUSR1
makes it slow in the next rebalance.  With an instance id in OTTLA_TEST_INSTANCE_ID it is a static member (KIP-345),
which ends with status 3 when another one takes its place.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from tests.history.member import RECORDS_PER_POLL_MAX, CommitResult, Member
from tests.history.operations import Outcome
from tests.history.recorder import Recorder
from tests.history.signalled_event import set_on

SESSION_TIMEOUT_MS: Final = 2_000
# Longer than any fault stops all brokers.  librdkafka forgets its member id at its own session timeout, so a commit
# that waited for the coordinator would leave without it, and be fenced by the session that the coordinator still has.
STATIC_SESSION_TIMEOUT_MS: Final = 30_000
INSTANCE_ID_VARIABLE: Final = "OTTLA_TEST_INSTANCE_ID"
FENCED_STATUS: Final = 3
# Longer than a session of the others: its heartbeats continue meanwhile.
DAWDLE_S: Final = 3.0
DAWDLED: Final = "dawdled"
METADATA_EVERY_MS: Final = 2_000
POLL_S: Final = 0.2
COMMITTED_S: Final = 5.0
REFUSED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._NO_OFFSET,
    }
)


class LibrdkafkaClient:
    """`GroupClient` of confluent-kafka, which does not expose generations."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def commit(self, partition: int, offset: int) -> CommitResult:
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, partition, offset)], asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in REFUSED:
                return CommitResult(Outcome.FAILED)
            return CommitResult(Outcome.UNKNOWN, f"{error.name()}: {error.str()}")
        return CommitResult(Outcome.OK)

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        try:
            found = self._consumer.committed(wanted, COMMITTED_S)
        except KafkaException:
            return None
        return {
            partition.partition: -1 if partition.offset == OFFSET_INVALID else partition.offset
            for partition in found
            if partition.error is None
        }

    def high_watermark(self, partition: int) -> int | None:
        found = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return None if found is None or found[1] < 0 else found[1]

    def generation(self) -> int:
        return -1


def settings(bootstrap: str, group: str, protocol: str) -> dict[str, str | int | bool]:
    common: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 200,
        # The topic may grow.
        "topic.metadata.refresh.interval.ms": METADATA_EVERY_MS,
    }
    if protocol == "consumer":
        return common | {"group.protocol": "consumer"}
    instance_id = os.environ.get(INSTANCE_ID_VARIABLE)
    static = {} if instance_id is None else {"group.instance.id": instance_id}
    return common | {
        "partition.assignment.strategy": protocol,
        "session.timeout.ms": SESSION_TIMEOUT_MS if instance_id is None else STATIC_SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 500,
        **static,
    }


class Fenced(Exception):
    """Another process has the instance id now."""


def read(consumer: Consumer, member: Member) -> None:
    member.begin_poll()
    give_up_s = time.monotonic() + POLL_S
    for _ in range(RECORDS_PER_POLL_MAX):
        # One by one: a batch call could give records from before and after a rebalance together.
        message = consumer.poll(max(give_up_s - time.monotonic(), 0))
        if message is None:
            break
        partition, offset, value = message.partition(), message.offset(), message.value()
        error = message.error()
        if error is not None and error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID):
            member.end_poll()
            raise Fenced(error.str())
        if error is None and partition is not None and offset is not None and value is not None:
            member.got(partition, offset, value)
    member.end_poll()


def main(name: str, bootstrap: str, topic: str, group: str, protocol: str, file: str) -> None:
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    is_slow = threading.Event()
    set_on(signal.SIGUSR1, is_slow)
    consumer = Consumer(settings(bootstrap, group, protocol))
    with Recorder(Path(file)) as recorder:
        member = Member(name, LibrdkafkaClient(consumer, topic), recorder)

        def dawdle() -> None:
            if is_slow.is_set():
                is_slow.clear()
                time.sleep(DAWDLE_S)
                sys.stderr.write(f"{DAWDLED}\n")

        def given(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
            dawdle()
            numbers = [partition.partition for partition in partitions]
            # A cooperative rebalance pauses what a member keeps.  librdkafka resumes it where the application was, and
            # may give it the last record once more when that was handed out in the same moment.
            kept = member.owned - set(numbers) if protocol == "cooperative-sticky" else set()
            member.given([*numbers, *sorted(kept)])
            member.read_committed(numbers)

        def taken(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
            dawdle()
            member.taken([partition.partition for partition in partitions])

        def lost(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
            member.lost(partition.partition for partition in partitions)

        consumer.subscribe([topic], on_assign=given, on_revoke=taken, on_lost=lost)
        try:
            while not stopping.is_set():
                read(consumer, member)
                member.commit_sometimes()
        except Fenced:
            member.lost(member.owned)
            raise
        finally:
            consumer.close()


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE = sys.argv
    try:
        main(NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE)
    except Fenced as fenced:
        sys.stderr.write(f"{fenced}\n")
        sys.exit(FENCED_STATUS)
