"""DeleteRecords waits until the live replicas have moved their log starts, too."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.record_deletions import RecordDeletions
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import NodeId, TopicPartition
from tests.unit.broker.partitions.test_replicated_partition import THIRD, Replicated, leader
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of

LONG_MS = 60_000


def followed() -> Replicated:
    """Leads three replicas with three records each, all of them committed."""
    here = leader()
    here.add(2)
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 3)
    assert here.partition.high_watermark == 3
    return here


async def one(deletions: RecordDeletions, before_offset: int, timeout_ms: int) -> int:
    (outcome,) = (await deletions.delete({TopicPartition("t", 0): before_offset}, timeout_ms)).values()
    if isinstance(outcome, OttlaError):
        raise outcome
    return outcome


async def deleting(here: Replicated, before_offset: int, timeout_ms: int = LONG_MS) -> asyncio.Task[int]:
    """A request that waits for the followers."""
    table = PartitionTable()
    table.add(here.partition)
    deletions = RecordDeletions(table, here.served.directory)
    task = asyncio.create_task(one(deletions, before_offset, timeout_ms))
    async with asyncio.timeout(30):
        while not deletions.waiting_count:  # the checkpoint is written in a thread
            assert not task.done()
            await asyncio.sleep(0)
    assert here.partition.log_start_offset == (3 if before_offset == -1 else before_offset), "it is deleted here"
    return task


async def ended(task: asyncio.Task[int]) -> int:
    async with asyncio.timeout(30):
        return await task


async def refusal_of(task: asyncio.Task[int]) -> ErrorCode:
    with pytest.raises(RequestError) as refusal:
        await ended(task)
    return refusal.value.code


@pytest.mark.parametrize(("before_offset", "low_watermark"), [(2, 2), (-1, 3)])
async def test_deletion_ends_when_the_last_live_follower_has_made_it(before_offset: int, low_watermark: int) -> None:
    here = followed()
    task = await deleting(here, before_offset)
    here.fetch(ELSEWHERE, 3, log_start=low_watermark)
    here.fetch(THIRD, 3, log_start=1)
    await asyncio.sleep(0)
    assert not task.done()
    here.fetch(THIRD, 3, log_start=low_watermark)
    assert await ended(task) == low_watermark


async def test_deletion_waits_for_a_live_follower_that_has_not_fetched_yet() -> None:
    here = leader()
    here.be(HERE, 1, HERE, ELSEWHERE)
    here.fetch(ELSEWHERE, 1)
    task = await deleting(here, 1)
    here.fetch(ELSEWHERE, 1, log_start=1)
    await asyncio.sleep(0)
    assert not task.done()
    here.fetch(THIRD, 1, log_start=1)
    assert await ended(task) == 1


async def test_deletion_times_out_while_a_live_follower_keeps_the_records() -> None:
    here = followed()
    task = await deleting(here, 2, timeout_ms=1)
    assert await refusal_of(task) is ErrorCode.REQUEST_TIMED_OUT
    assert here.partition.log_start_offset == 2
    here.fetch(ELSEWHERE, 3, log_start=2)  # reports to no waiter any more


async def test_follower_whose_broker_is_gone_is_not_waited_for() -> None:
    here = followed()
    task = await deleting(here, 2)
    here.fetch(ELSEWHERE, 3, log_start=2)
    here.lifecycle = one_of(HERE, ELSEWHERE)
    here.be(HERE, 1)
    assert await ended(task) == 2


async def test_follower_whose_process_is_gone_is_not_waited_for() -> None:
    here = followed()
    task = await deleting(here, 2)
    here.fetch(ELSEWHERE, 3, log_start=2)
    here.partition.on_follower_gone(THIRD, 10 * THIRD)
    assert await ended(task) == 2


async def test_leader_that_is_replaced_cannot_know_and_says_so() -> None:
    here = followed()
    task = await deleting(here, 2)
    here.be(ELSEWHERE, 2)
    assert await refusal_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_deletion_ends_with_the_partition() -> None:
    here = followed()
    task = await deleting(here, 2)
    here.partition.retire(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await refusal_of(task) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_deletion_of_what_is_deleted_everywhere_does_not_wait() -> None:
    here = followed()
    table = PartitionTable()
    table.add(here.partition)
    for node_id in (ELSEWHERE, THIRD):
        here.fetch(node_id, 3, log_start=2)
    here.partition.delete_records_before(2)
    assert await one(RecordDeletions(table, here.served.directory), 1, 0) == 2


def test_low_watermark_is_known_to_the_leader_only() -> None:
    here = followed()
    assert here.partition.low_watermark == 0
    here.be(NodeId(2), 2)
    assert here.partition.low_watermark == -1
