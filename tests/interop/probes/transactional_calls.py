"""Requests of transactional producers and coordinators, for every version, and producers that scripts begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.records.builder import BatchBuilder
from ottla.records.header import read_header
from ottla.records.record import decode_batch, split_batches
from tests.interop.probes.kafka_request import KafkaRequest
from tests.interop.probes.talk import MAIN, Talk

TRANSACTION: Final = 1
NO_PRODUCER: Final = -1
TIMEOUT_MS: Final = 60_000
COMMITTED: Final = 1
TIMESTAMP_MS: Final = 1_700_000_000_000
# A client repeats these; when they come is a matter of time.
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class Identity(NamedTuple):
    """What a transactional producer identifies itself with."""

    transactional_id: str
    producer_id: int
    epoch: int

    def later(self, epochs: int = 1) -> Identity:
        return self._replace(epoch=self.epoch + epochs)

    def of_another(self) -> Identity:
        return self._replace(producer_id=self.producer_id + 1_000_003)


def is_settled(answer: object) -> bool:
    """Whether no error of the answer passes with time."""
    text = repr(answer)
    return not any(f"ErrorCode.{code.name.lower()}:" in text for code in PASSING)


def begin(
    talk: Talk, transactional_id: str, *, version: int = 5, timeout_ms: int = TIMEOUT_MS, on: str = MAIN
) -> Identity:
    """A producer's start, unlabelled, by KIP-890's protocol from version 5 on.  It aborts an open transaction."""
    # Apache Kafka creates the coordinators' topic at the first search for one.
    talk.wait_until(4, find(transactional_id), is_settled, on=on)
    request = init(transactional_id, timeout_ms=timeout_ms)
    # Twice: so there is an epoch before this one, of a producer that was replaced.
    talk.wait_until(version, request, is_settled, on=on)
    answer: Any = talk.wait_until(version, request, is_settled, on=on)
    assert answer.error_code.value == 0, answer
    return Identity(transactional_id, answer.producer_id, answer.producer_epoch)


def find(key: str, key_type: int = TRANSACTION) -> KafkaRequest:
    return KafkaRequest("FindCoordinator", key=key, key_type=key_type, coordinator_keys=[key])


def init(
    transactional_id: str | None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    producer_id: int = NO_PRODUCER,
    epoch: int = NO_PRODUCER,
) -> KafkaRequest:
    return KafkaRequest(
        "InitProducerId",
        transactional_id=transactional_id,
        transaction_timeout=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        enable2_pc=False,
        keep_prepared_txn=False,
    )


def add_partitions(who: Identity, topics: Mapping[str, Sequence[int]], *, verify_only: bool = False) -> KafkaRequest:
    parts = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    transaction = {
        "transactional_id": who.transactional_id,
        "producer_id": who.producer_id,
        "producer_epoch": who.epoch,
        "verify_only": verify_only,
        "topics": parts,
    }
    return KafkaRequest(
        "AddPartitionsToTxn",
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=parts,
        transactions=[transaction],
    )


def add_offsets(who: Identity, group: str) -> KafkaRequest:
    return KafkaRequest(
        "AddOffsetsToTxn",
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group,
    )


def end(who: Identity, *, commits: bool) -> KafkaRequest:
    return KafkaRequest(
        "EndTxn",
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commits,
    )


def commit_offsets(
    who: Identity,
    group: str,
    topic: str,
    offset: int = 7,
    *,
    partition: int = 0,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> KafkaRequest:
    part = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return KafkaRequest(
        "TxnOffsetCommit",
        transactional_id=who.transactional_id,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[{"name": topic, "partitions": [part]}],
    )


def fetch_offsets(group: str, topic: str, *, stable: bool = True) -> KafkaRequest:
    topics = [{"name": topic, "partition_indexes": [0]}]
    return KafkaRequest(
        "OffsetFetch",
        group_id=group,
        topics=topics,
        groups=[{"group_id": group, "topics": topics}],
        require_stable=stable,
    )


def write_marker(
    producer_id: int, epoch: int, topic: str, *, commits: bool, coordinator_epoch: int, version_of_protocol: int = 0
) -> KafkaRequest:
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commits,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": version_of_protocol,
    }
    return KafkaRequest("WriteTxnMarkers", markers=[marker])


def describe(*transactional_ids: str) -> KafkaRequest:
    return KafkaRequest("DescribeTransactions", transactional_ids=transactional_ids)


def describe_producers(topic: str, partition: int = 0) -> KafkaRequest:
    return KafkaRequest("DescribeProducers", topics=[{"name": topic, "partition_indexes": [partition]}])


def batch(who: Identity | None, sequence: int, count: int = 1, *, transactional: bool = True) -> bytes:
    """Values are numbers of their sequence, with one time for all."""
    builder = BatchBuilder()
    for number in range(count):
        builder.append(TIMESTAMP_MS, None, b"%d" % (sequence + number))
    if who is None:
        return bytes(builder.build())
    return bytes(
        builder.build(
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def produce(
    who: Identity,
    topic: str,
    sequence: int,
    count: int = 1,
    *,
    partition: int = 0,
    transactional: bool = True,
    names_its_id: bool = True,
) -> KafkaRequest:
    part = {"index": partition, "records": batch(who, sequence, count, transactional=transactional)}
    return KafkaRequest(
        "Produce",
        transactional_id=who.transactional_id if names_its_id else None,
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )


def fetch(topic: str, offset: int, *, isolation: int = COMMITTED) -> KafkaRequest:
    """By the topic's name: up to version 12."""
    part = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    return KafkaRequest(
        "Fetch",
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[{"topic": topic, "partitions": [part]}],
        forgotten_topics_data=[],
    )


def list_offsets(topic: str, timestamp: int, *, isolation: int = COMMITTED) -> KafkaRequest:
    part = {"partition_index": 0, "timestamp": timestamp}
    return KafkaRequest(
        "ListOffsets",
        replica_id=-1,
        isolation_level=isolation,
        topics=[{"name": topic, "partitions": [part]}],
        timeout=5_000,
    )


def keep_fetched(talk: Talk, label: str, version: int, request: KafkaRequest) -> None:
    """The answer to a fetch of one partition, with its batches decoded: ids and checksums of two brokers differ."""
    answer: Any = talk.ask_quietly(version, request)
    (topic,) = answer.responses
    (part,) = topic.partitions
    aborted = part.aborted_transactions
    if aborted is not None:
        aborted = [(talk.name_of("producer_id", each.producer_id), each.first_offset) for each in aborted]
    talk.keep(
        label,
        {
            "error_code": part.error_code.value,
            "high_watermark": part.high_watermark,
            "last_stable_offset": getattr(part, "last_stable_offset", None),
            "aborted": aborted,
            "batches": _batches(talk, part.records or b""),
        },
    )


def _batches(talk: Talk, records: bytes) -> list[object]:
    found: list[object] = []
    for each in split_batches(memoryview(records)):
        header = read_header(each)
        found.append(
            {
                "base_offset": header.base_offset,
                "attributes": header.attributes,
                "producer": talk.name_of("producer_id", header.producer_id),
                "epoch": header.producer_epoch,
                "sequence": header.base_sequence,
                "records": [(record.key, record.value) for record in decode_batch(each)],
            }
        )
    return found
