from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.roles import lead

VERSIONS = [2, 3, 4]


async def ask(broker: SmallBroker, version: int, epoch: int, *, current: int = -1, index: int = 0) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(index, current, epoch)])]
    )
    response = await broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request, OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0]


def with_epochs() -> SmallBroker:
    """Epoch 1 has offsets 0-1, epoch 3 has 2-4, epoch 6 is current and has no record yet."""
    broker = SmallBroker()
    broker.add_topic("t", leader_epoch=1)
    broker.append("t", 1, 2)
    partition = broker.partition("t")
    for epoch, records_count in ((3, 3), (6, 0)):
        lead(partition, epoch)
        for _ in range(records_count):
            broker.append("t", 5)
    return broker


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("asked", "epoch", "end_offset"), [(1, 1, 2), (2, 1, 2), (3, 3, 5), (4, 3, 5), (6, 6, 5), (0, 0, 0)]
)
async def test_end_of_an_epoch_is_the_start_of_the_next_one(
    version: int, asked: int, epoch: int, end_offset: int
) -> None:
    assert await ask(with_epochs(), version, asked) == EpochEndOffset(0, 0, epoch, end_offset)


@pytest.mark.parametrize("version", VERSIONS)
async def test_epoch_that_never_was_is_answered_without_an_end_and_without_an_error(version: int) -> None:
    assert await ask(with_epochs(), version, 7) == EpochEndOffset(0, 0, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("asked", "epoch", "end_offset"), [(4, 4, 0), (3, 3, 0), (5, -1, -1)])
async def test_empty_log_knows_the_current_epoch(version: int, asked: int, epoch: int, end_offset: int) -> None:
    broker = SmallBroker()
    broker.add_topic("t", leader_epoch=4)
    assert await ask(broker, version, asked) == EpochEndOffset(0, 0, epoch, end_offset)


@pytest.mark.parametrize("version", VERSIONS)
async def test_other_leader_epoch_than_the_current_one_is_refused(version: int) -> None:
    broker = with_epochs()
    assert await ask(broker, version, 1, current=5) == EpochEndOffset(ErrorCode.FENCED_LEADER_EPOCH, 0)
    assert await ask(broker, version, 1, current=7) == EpochEndOffset(ErrorCode.UNKNOWN_LEADER_EPOCH, 0)
    assert (await ask(broker, version, 1, current=6)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_partition_is_told(version: int) -> None:
    result = await ask(with_epochs(), version, 1, index=9)
    assert result == EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9)
