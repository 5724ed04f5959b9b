"""What housekeeping does for requests that wait."""

from __future__ import annotations

from ottla.broker.partitions.partition import EPOCH_START_WAIT_MS
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.waiting_requests import ACKS_LEADER
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.storage.log_config import LogConfig
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated
from tests.unit.broker.served_log import ServedLog
from tests.unit.broker.turned_loop import TurnedLoop


def test_readers_of_a_new_leader_with_too_few_replicas_in_sync_are_served_after_a_while() -> None:
    log = ServedLog("t", leader_epoch=None, config=LogConfig(min_insync_replicas=2))
    log.partition.on_state(replicated(HERE, 1, 1, (HERE,)), one_of(HERE, ELSEWHERE), log.clock.monotonic_ms())
    log.append(acks=ACKS_LEADER)
    log.become_stable()
    assert log.partition.high_watermark == 0
    log.partition.on_state(replicated(HERE, 2, 2, (HERE,)), one_of(HERE, ELSEWHERE), log.clock.monotonic_ms())
    table = PartitionTable()
    table.add(log.partition)
    housekeeping = Housekeeping(
        log.directory,
        table,
        log.clock,
        TurnedLoop(),  # type: ignore[arg-type]  # the part of a loop that it uses
        5_000,
    )
    housekeeping.expire_waits()
    assert log.partition.withholds_reads
    log.clock.advance(EPOCH_START_WAIT_MS)
    housekeeping.expire_waits()
    assert not log.partition.withholds_reads
