"""A worker through librdkafka, whose transactions are those before KIP-890's second part.

    python -m tests.transactions_history.working_librdkafka NAME BOOTSTRAP TOPIC GROUP PROTOCOL FILE

`TOPIC` has the inputs.  NAME starts with `member` and a number: members share a few transactional ids, so that one that
starts fences another, or ends what a killed one has left open.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.history.clients import PARTITIONS_COUNT
from tests.history.consuming_librdkafka import settings
from tests.history.recorder import Recorder
from tests.history.signalled_event import set_on
from tests.transactions_history.worker import (
    GAVE_UP,
    NO_ASSIGNMENT,
    TIMEOUTS_MS,
    Inputs,
    MustAbort,
    ProducerEnded,
    Record,
    Worker,
    results_topic,
)

POLL_S: Final = 0.1
# Of one call; calls that time out are repeated.
CALL_S: Final = 5.0
# Of all repeats, and of a call that does not return: the library's 2.16 waits for ever in `send_offsets_to_transaction`
# when the group's coordinator was away, since it keeps a removed broker as the coordinator (its issue 5511).
GIVE_UP_S: Final = 20.0
# An open transaction of a killed worker holds its lists back until it times out.
READ_TO_THE_END_S: Final = 2.0
IDS_COUNT: Final = 4
# Less than any time-out of a transaction, as the library requires.
SOCKET_TIMEOUT_MS: Final = 2_500
# A planted fault sets another one.
ISOLATION = "read_committed"
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class LibrdkafkaTransactions:
    """`TransactionalClient` of confluent-kafka."""

    def __init__(self, name: str, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        self._name = name
        self._topic = topic
        self._bootstrap = bootstrap
        self._transactional_id = f"{topic}-{_number_of(name) % IDS_COUNT}"
        self._timeout_ms = random.Random(name).choice(TIMEOUTS_MS)
        self._fenced_count = 0
        self._assignment = NO_ASSIGNMENT
        self._assigned: frozenset[int] = frozenset()
        self._metadata: object = None
        common: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{name}-state",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
        }
        self._results = Consumer({**common, "isolation.level": ISOLATION, "enable.partition.eof": True})
        self._watermarks = Consumer({**common, "isolation.level": "read_uncommitted"})
        self._results_next: dict[int, int] = defaultdict(int)
        self._consumer = Consumer({**settings(bootstrap, group, protocol), "isolation.level": ISOLATION})
        self._consumer.subscribe([topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)
        self._made: Producer | None = None

    def poll(self, count: int) -> Inputs:
        records: dict[int, list[Record]] = defaultdict(list)
        before = self._assignment
        give_up_s = time.monotonic() + POLL_S
        for _ in range(count):
            # One by one: a batch call could give records from before and after a rebalance together.
            message = self._consumer.poll(max(give_up_s - time.monotonic(), 0))
            if message is None:
                break
            if self._assignment != before:
                records.clear()
                before = self._assignment
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None and partition is not None and offset is not None and value is not None:
                records[partition].append((offset, value.decode()))
        if self._assignment != before:
            records.clear()
        return Inputs(self._assignment, records)

    def assigned(self) -> tuple[int, frozenset[int]]:
        return self._assignment, self._assigned

    def position(self, offsets: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()])

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        try:
            # A `read_committed` consumer requires stable offsets.
            found = self._consumer.committed(wanted, CALL_S)
        except KafkaException as failure:
            sys.stderr.write(f"committed: {failure}\n")
            return None
        if any(each.error is not None for each in found):
            return None
        return {each.partition: -1 if each.offset == OFFSET_INVALID else each.offset for each in found}

    def _given(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        # Nothing is read before `position`.
        consumer.assign([])
        self._assignment += 1
        self._assigned = frozenset(each.partition for each in partitions)
        # Of this assignment: a later one without these partitions must not commit their offsets.
        self._metadata = consumer.consumer_group_metadata()

    def _taken(self, consumer: Consumer, _: Sequence[TopicPartition]) -> None:
        consumer.unassign()
        self._assignment += 1
        self._assigned = frozenset()

    def read_results(self, partitions: Iterable[int]) -> tuple[Mapping[int, Sequence[Record]], bool]:
        topic = results_topic(self._topic)
        read: dict[int, list[Record]] = defaultdict(list)
        ends: dict[int, int] = {}
        try:
            for partition in partitions:
                place = TopicPartition(topic, partition)
                _, ends[partition] = self._watermarks.get_watermark_offsets(place, CALL_S, cached=False)
            self._results.assign([TopicPartition(topic, each, self._results_next[each]) for each in ends])
        except KafkaException as failure:
            sys.stderr.write(f"high watermark: {failure}\n")
            return {}, False
        give_up_s = time.monotonic() + READ_TO_THE_END_S
        while any(self._results_next[each] < end for each, end in ends.items()) and time.monotonic() < give_up_s:
            message = self._results.poll(POLL_S)
            if message is None:
                continue
            number, offset, value, error = message.partition(), message.offset(), message.value(), message.error()
            if number is None or offset is None:
                continue
            if error is None and value is not None:
                read[number].append((offset, value.decode()))
                self._results_next[number] = offset + 1
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                # Beyond markers and what was aborted.
                self._results_next[number] = max(self._results_next[number], offset)
        self._results.unassign()
        return read, all(self._results_next[each] >= end for each, end in ends.items())

    @property
    def _producer(self) -> Producer:
        assert self._made is not None, "`renew` makes the first one"
        return self._made

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send(self, partition: int, value: str, acknowledged: Callable[[int], None]) -> None:
        def settled(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None and offset >= 0:
                acknowledged(offset)

        topic = results_topic(self._topic)
        _call(lambda: self._producer.produce(topic, value=value, partition=partition, on_delivery=settled))

    def flush(self) -> None:
        self._producer.flush(CALL_S)

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        producer, metadata = self._producer, self._metadata
        _call(lambda: _in_time(lambda: producer.send_offsets_to_transaction(wanted, metadata, CALL_S)))

    def commit(self) -> None:
        _call(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        _call(lambda: self._producer.abort_transaction(CALL_S))

    def renew(self, *, is_fenced: bool) -> None:
        if is_fenced:
            self._fenced_count += 1
            self._transactional_id = f"{self._name}-{self._fenced_count}"
        self._made = producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": self._timeout_ms,
                # Otherwise it removes every broker when none is connected, and then waits as at `GIVE_UP_S`.
                "metadata.recovery.strategy": "none",
                "linger.ms": 2,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
            }
        )
        _call(lambda: producer.init_transactions(CALL_S))

    def close(self) -> None:
        for consumer in (self._consumer, self._results, self._watermarks):
            consumer.close()


def _call(call: Callable[[], object]) -> None:
    """Repeated while its error permits; the library continues what a call that timed out has started."""
    give_up_s = time.monotonic() + GIVE_UP_S
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            error = failure.args[0]
            shown = f"{error.name()}: {error.str()}"
            if error.txn_requires_abort():
                raise MustAbort(shown) from None
            if error.fatal() or not error.retriable():
                sys.stderr.write(f"{shown}\n")
                raise ProducerEnded(shown, is_fenced=error.code() in _FENCED) from None
            if time.monotonic() > give_up_s:
                sys.stderr.write(f"{GAVE_UP}: {shown}\n")
                raise ProducerEnded(f"{GAVE_UP}: {shown}", is_fenced=False) from None


def _in_time(call: Callable[[], object]) -> None:
    """Raises `ProducerEnded` when the call does not return; its thread is left then, with the producer that it uses."""
    failures: list[KafkaException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            call()
        except KafkaException as failure:
            failures.append(failure)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    if not ended.wait(GIVE_UP_S):
        sys.stderr.write(f"{GAVE_UP}: a call did not return\n")
        raise ProducerEnded(f"{GAVE_UP}: a call did not return", is_fenced=False)
    if failures:
        raise failures[0]


def _number_of(name: str) -> int:
    found = re.match(r"member(\d+)", name)
    assert found is not None, name
    return int(found[1])


def main(name: str, bootstrap: str, topic: str, group: str, protocol: str, file: str) -> None:
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    with Recorder(Path(file)) as recorder:
        client = LibrdkafkaTransactions(name, bootstrap, topic, group, protocol)
        try:
            Worker(name, client, recorder, PARTITIONS_COUNT).run(stopping)
        finally:
            client.close()


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, GROUP, PROTOCOL, FILE)
