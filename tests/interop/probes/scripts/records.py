"""Produce and fetch: limits, sequences, sessions, offsets of times, epochs."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.model.error_code import ErrorCode
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.schemas.delete_topics import DeleteTopicsRequest
from ottla.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from tests.interop.probes.talk import Talk

RECORDS_PER_BATCH: Final = 5
NO_TOPIC: Final = UUID("00000000-0000-4000-8000-000000000001")


def _batch(
    timestamp_ms: int,
    count: int = RECORDS_PER_BATCH,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
) -> bytearray:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(timestamp_ms + number, b"key", b"value %d" % number)
    return builder.build(codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def _produce(
    topic: str,
    data: bytes | bytearray | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> ProduceRequest:
    part = PartitionProduceData(partition, data)
    return ProduceRequest(transactional_id, acks, 5_000, [TopicProduceData(topic, [part])])


def probe_produce(talk: Talk) -> None:
    talk.create_topic("probe-produce")
    for version in range(3, 10):
        talk.ask(f"Produce v{version}", version, _produce("probe-produce", _batch(1_000 * version)))
    corrupt = _batch(20_000)
    corrupt[-3] ^= 1
    counts_wrong = _batch(20_000)
    counts_wrong[23:27] = (7).to_bytes(4, "big")
    old_format = _batch(20_000)
    old_format[16] = 1
    cases = {
        "acks=1": _produce("probe-produce", _batch(21_000), acks=1),
        "acks=2": _produce("probe-produce", _batch(22_000), acks=2),
        "to an unknown topic": _produce("probe-nowhere", _batch(20_000)),
        "to an unknown partition": _produce("probe-produce", _batch(20_000), partition=9),
        "to a bad name": _produce("bad name", _batch(20_000)),
        "a wrong checksum": _produce("probe-produce", corrupt),
        "two batches": _produce("probe-produce", _batch(20_000) + _batch(20_000)),
        "no batch": _produce("probe-produce", b""),
        "half a batch": _produce("probe-produce", _batch(20_000)[:40]),
        "a last offset beyond the count": _produce("probe-produce", counts_wrong),
        "message format 1": _produce("probe-produce", old_format),
        "an unknown producer's batch": _produce(
            "probe-produce", _batch(20_000, producer_id=987_654, epoch=0, sequence=50)
        ),
        "a transactional id without its batch": _produce("probe-produce", _batch(20_000), transactional_id="t"),
        "a time in the far future": _produce("probe-produce", _batch(9_000_000_000_000)),
    }
    for codec in Codec:
        cases[f"compressed by {codec.name}"] = _produce("probe-produce", _batch(23_000, codec=codec))
    for label, request in cases.items():
        talk.ask(f"Produce v9 {label}", 9, request)
    zstd = _produce("probe-produce", _batch(24_000, codec=Codec.ZSTD))
    talk.ask("Produce v6 with zstd", 6, zstd)


def probe_acks_zero(talk: Talk) -> None:
    """A produce without a response: the response to the next request on its connection shows the outcome."""
    talk.create_topic("probe-acks-0")
    latest = _offsets("probe-acks-0", -1)
    talk.send_silently(9, _produce("probe-acks-0", _batch(1_000), acks=0))
    talk.wait_until(5, latest, lambda answer: f"offset={RECORDS_PER_BATCH}," in repr(answer))
    talk.ask("after Produce acks=0", 5, latest)
    talk.send_silently(9, _produce("probe-nowhere", _batch(1_000), acks=0))
    talk.ask("after Produce acks=0 to nowhere", 5, latest)


def probe_idempotence(talk: Talk) -> None:
    talk.create_topic("probe-idempotence")
    talk.wait_until(4, InitProducerIdRequest(None, 60_000), lambda answer: "error_code=0" in repr(answer))
    new = talk.ask_for("InitProducerId", 4, InitProducerIdRequest(None, 60_000), InitProducerIdResponse)
    steps = [
        ("first", 0, 0, 3),
        ("again", 0, 0, 3),
        ("next", 0, 3, 2),
        ("gap", 0, 9, 2),
        ("overlap", 0, 4, 2),
        ("part of an old one", 0, 1, 2),
        ("third", 0, 5, 1),
        ("fourth", 0, 6, 1),
        ("fifth", 0, 7, 1),
        ("sixth", 0, 8, 1),
        ("seventh", 0, 9, 1),
        ("oldest remembered", 0, 5, 1),
        ("forgotten", 0, 0, 3),
        ("new epoch not at 0", 1, 4, 1),
        ("new epoch", 1, 0, 1),
        ("old epoch", 0, 10, 1),
        ("two epochs on", 3, 0, 1),
    ]
    for label, epoch, sequence, count in steps:
        data = _batch(1_000, count, producer_id=new.producer_id, epoch=epoch, sequence=sequence)
        talk.ask(f"idempotent: {label}", 7, _produce("probe-idempotence", data))
    wrapped = new.producer_id + 10_000
    near_end = 2**31 - 3
    for label, sequence, count in [("to the end", near_end, 3), ("over the end", 0, 1), ("on", 1, 1)]:
        data = _batch(1_000, count, producer_id=wrapped, epoch=0, sequence=sequence)
        talk.ask(f"idempotent sequence {label}", 7, _produce("probe-idempotence", data))


def _fetch(
    topic: str | None,
    offset: int = 0,
    *,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    isolation: int = 0,
    session: int = 0,
    epoch: int = -1,
    leader_epoch: int = -1,
    forgotten: str | None = None,
    partition: int = 0,
    last_epoch: int = -1,
) -> FetchRequest:
    part = FetchPartition(partition, leader_epoch, offset, last_epoch, -1, partition_max_bytes)
    topics = [FetchTopic(topic, partitions=[part])] if topic is not None else []
    gone = [ForgottenTopic(forgotten, partitions=[0])] if forgotten is not None else []
    return FetchRequest(-1, max_wait_ms, min_bytes, max_bytes, isolation, session, epoch, topics, gone)


def _fill(talk: Talk, topic: str) -> None:
    talk.create_topic(topic)
    for number in range(3):
        talk.ask(f"fill {topic} {number}", 7, _produce(topic, _batch(1_000 * (number + 1))))


def probe_fetch(talk: Talk) -> None:
    topic = "probe-fetch"
    talk.create_topic("probe-fetch-empty")
    _fill(talk, topic)
    for version in range(4, 13):
        talk.ask(f"Fetch v{version}", version, _fetch(topic, 5))
    cases = {
        "an empty topic": _fetch("probe-fetch-empty"),
        "inside a batch, one byte": _fetch(topic, 2, max_bytes=1, partition_max_bytes=1),
        "the first batch only": _fetch(topic, partition_max_bytes=150),
        "no bytes": _fetch(topic, max_bytes=0, partition_max_bytes=0),
        "at the end": _fetch(topic, 15),
        "beyond the end": _fetch(topic, 16),
        "a negative offset": _fetch(topic, -5),
        "beyond the end, waiting": _fetch(topic, 99, max_wait_ms=5_000),
        "at the end, waiting": _fetch(topic, 15, max_wait_ms=200),
        "more than there is, waiting": _fetch(topic, max_wait_ms=200, min_bytes=1 << 20),
        "read committed": _fetch(topic, isolation=1),
        "read committed of nothing": _fetch(topic, 15, isolation=1),
        "an unknown topic": _fetch("probe-nowhere"),
        "an unknown partition": _fetch(topic, partition=3),
        "the current epoch": _fetch(topic, 12, leader_epoch=0),
        "an epoch to come": _fetch(topic, leader_epoch=5),
        "the last epoch": _fetch(topic, 10, last_epoch=0),
        "a last epoch to come": _fetch(topic, 10, last_epoch=5),
        "no topic": _fetch(None),
    }
    for label, request in cases.items():
        talk.ask(f"Fetch v12 {label}", 12, request)


def probe_fetch_sessions(talk: Talk) -> None:
    topic = "probe-session"
    _fill(talk, topic)
    opened = talk.ask_for("session: open", 12, _fetch(topic, 0, epoch=0), FetchResponse).session_id
    talk.ask("session: the same again", 12, _fetch(None, session=opened, epoch=1))
    talk.ask("session: from the end", 12, _fetch(topic, 15, session=opened, epoch=2))
    talk.ask("session: nothing new", 12, _fetch(None, session=opened, epoch=3, max_wait_ms=100))
    talk.ask("session: produce", 7, _produce(topic, _batch(4_000)))
    talk.ask("session: something new", 12, _fetch(None, session=opened, epoch=4, max_wait_ms=100))
    talk.ask("session: an unknown topic joins", 12, _fetch("probe-nowhere", session=opened, epoch=5))
    talk.ask("session: and is still unknown", 12, _fetch(None, session=opened, epoch=6))
    talk.ask("session: forget it", 12, _fetch(None, session=opened, epoch=7, forgotten="probe-nowhere"))
    talk.ask("session: a wrong epoch", 12, _fetch(None, session=opened, epoch=99))
    talk.ask("session: an unknown id", 12, _fetch(None, session=12_345, epoch=1))
    talk.ask("session: close", 12, _fetch(topic, 20, session=opened, epoch=-1))
    talk.ask("session: after its end", 12, _fetch(None, session=opened, epoch=8))
    talk.ask("session: open with nothing", 12, _fetch(None, epoch=0))


def _fetch_by_id(
    *topic_ids: UUID,
    offset: int = 0,
    partition: int = 0,
    session: int = 0,
    epoch: int = -1,
    max_wait_ms: int = 0,
    isolation: int = 0,
    leader_epoch: int = -1,
    forgotten: UUID | None = None,
) -> FetchRequest:
    part = FetchPartition(partition, leader_epoch, offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=each, partitions=[part]) for each in topic_ids],
        forgotten_topics_data=[] if forgotten is None else [ForgottenTopic(topic_id=forgotten, partitions=[0])],
    )


def _id_of(talk: Talk, label: str, topic: str) -> UUID:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return talk.ask_for(label, 12, request, MetadataResponse).topics[0].topic_id


def probe_fetch_by_id(talk: Talk) -> None:
    talk.create_topic("probe-ids-empty")
    _fill(talk, "probe-ids")
    full, empty = _id_of(talk, "the full topic", "probe-ids"), _id_of(talk, "the empty topic", "probe-ids-empty")
    for version in range(13, 18):
        talk.ask(f"Fetch v{version}", version, _fetch_by_id(full, empty, offset=5))
    cases = {
        "an unknown id": _fetch_by_id(NO_TOPIC, full),
        "no id": _fetch_by_id(ZERO_UUID),
        "an unknown partition": _fetch_by_id(full, partition=3),
        "at the end, waiting": _fetch_by_id(full, offset=15, max_wait_ms=200),
        "beyond the end": _fetch_by_id(full, offset=16),
        "read committed": _fetch_by_id(full, isolation=1),
        "an epoch to come": _fetch_by_id(full, leader_epoch=5),
        "no topic": _fetch_by_id(),
    }
    for label, request in cases.items():
        talk.ask(f"Fetch v17 {label}", 17, request)


def probe_fetch_sessions_by_id(talk: Talk) -> None:
    _fill(talk, "probe-id-session")
    topic_id = _id_of(talk, "the topic", "probe-id-session")
    opened = talk.ask_for("session: open", 17, _fetch_by_id(topic_id, epoch=0), FetchResponse).session_id
    talk.ask("session: the same again", 13, _fetch_by_id(session=opened, epoch=1))
    talk.ask("session: by name", 12, _fetch(None, session=opened, epoch=2))
    talk.ask("session: by name in another epoch", 12, _fetch(None, session=opened, epoch=7))
    talk.ask("session: from the end", 17, _fetch_by_id(topic_id, offset=15, session=opened, epoch=2))
    talk.ask("session: nothing new", 17, _fetch_by_id(session=opened, epoch=3, max_wait_ms=100))
    talk.ask("session: an unknown id joins", 17, _fetch_by_id(NO_TOPIC, session=opened, epoch=4))
    talk.ask("session: and is still unknown", 17, _fetch_by_id(session=opened, epoch=5))
    talk.ask("session: forget it", 17, _fetch_by_id(session=opened, epoch=6, forgotten=NO_TOPIC))
    talk.ask_quietly(5, DeleteTopicsRequest(topic_names=["probe-id-session"], timeout_ms=10_000))
    named = MetadataRequest([MetadataRequestTopic(name="probe-id-session")], allow_auto_topic_creation=False)
    talk.wait_until(12, named, lambda answer: f"error_code={ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:d}" in repr(answer))
    talk.ask("session: the topic is gone", 17, _fetch_by_id(session=opened, epoch=7))
    talk.create_topic("probe-id-session")
    talk.ask("session: the topic was recreated", 17, _fetch_by_id(session=opened, epoch=8))
    talk.ask("the id of the one that is gone", 17, _fetch_by_id(topic_id))
    by_name = talk.ask_for("session: open by name", 12, _fetch("probe-id-session", epoch=0), FetchResponse).session_id
    talk.ask("session: by id", 13, _fetch_by_id(session=by_name, epoch=1))


def _offsets(topic: str, timestamp: int, *, epoch: int = -1, isolation: int = 0) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, epoch, timestamp)])])


def probe_list_offsets(talk: Talk) -> None:
    topic = "probe-offsets"
    talk.create_topic("probe-offsets-empty")
    _fill(talk, topic)
    for version in range(1, 10):
        talk.ask(f"ListOffsets v{version} latest", version, _offsets(topic, -1))
    for timestamp in (-1, -2, -3, -4, -5, -6, -99, 0, 1_500, 2_000, 2_002, 3_004, 3_005, 9 * 10**15):
        talk.ask(f"ListOffsets v9 of {timestamp}", 9, _offsets(topic, timestamp))
        talk.ask(f"ListOffsets v9 of {timestamp} in an empty topic", 9, _offsets("probe-offsets-empty", timestamp))
    for version, timestamp in ((6, -3), (7, -4), (8, -5)):
        talk.ask(f"ListOffsets v{version} of {timestamp}, too early", version, _offsets(topic, timestamp))
    talk.ask("ListOffsets of an unknown topic", 9, _offsets("probe-nowhere", -1))
    talk.ask("ListOffsets of an epoch to come", 9, _offsets(topic, -1, epoch=9))
    talk.ask("ListOffsets of the current epoch", 9, _offsets(topic, -1, epoch=0))
    talk.ask("ListOffsets read committed", 9, _offsets(topic, -1, isolation=1))
    for epoch, current in ((0, -1), (7, -1), (0, 7), (-1, -1)):
        part = OffsetForLeaderPartition(0, current, epoch)
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [part])])
        talk.ask(f"OffsetForLeaderEpoch {epoch}, current {current}", 4, request)


def probe_delete_records(talk: Talk) -> None:
    topic = "probe-delete-records"
    _fill(talk, topic)
    for label, name, offset in [
        ("to 7", topic, 7),
        ("back to 3", topic, 3),
        ("beyond the end", topic, 99),
        ("of nowhere", "probe-nowhere", 1),
        ("to the end", topic, -1),
        ("of -2", topic, -2),
    ]:
        part = DeleteRecordsPartition(0, offset)
        talk.ask(f"DeleteRecords {label}", 2, DeleteRecordsRequest([DeleteRecordsTopic(name, [part])], 5_000))
    talk.ask("Fetch below the new start", 12, _fetch(topic, 3))
    talk.ask("ListOffsets earliest after DeleteRecords", 9, _offsets(topic, -2))
    talk.ask("ListOffsets of a time before the new start", 9, _offsets(topic, 0))
