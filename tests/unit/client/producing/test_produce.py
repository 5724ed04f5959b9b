from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producing.produce_queue import PendingBatch
from ottla.client.producing.produce_requests import produce_body
from ottla.client.wire.retrying import Deadline
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.testing.fake_clock import FakeClock

NEVER = Deadline(FakeClock(), 1e12)


def pending(topic: str, partition: int, batch: bytes) -> PendingBatch:
    return PendingBatch(TopicPartition(topic, partition), bytearray(batch), 1, 1, NEVER, None)


@pytest.mark.parametrize("version", range(3, 11))
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "clicks", "t" * 249]), st.integers(0, 5), st.binary(min_size=1, max_size=300)),
        max_size=6,
        unique_by=lambda row: row[:2],
    ).map(sorted),
    acks=st.sampled_from([-1, 0, 1]),
)
def test_produce_body_equals_the_message_codecs(version: int, rows: list[tuple[str, int, bytes]], acks: int) -> None:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, partition, batch in rows:
        topics.setdefault(topic, []).append(PartitionProduceData(partition, batch))
    message = ProduceRequest(None, acks, 1234, [TopicProduceData(topic, data) for topic, data in topics.items()])
    ours = produce_body(version, acks, 1234, [pending(*row) for row in rows])
    assert b"".join(bytes(piece) for piece in ours) == encode_request(ApiKey.PRODUCE, version, message)


def test_produce_body_does_not_copy_the_batches() -> None:
    batch = pending("t", 0, b"x" * 1000)
    assert batch.batch in [piece for piece in produce_body(9, -1, 1000, [batch]) if piece is batch.batch]
