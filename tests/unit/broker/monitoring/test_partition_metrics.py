"""What a scrape shows of partitions: who took which bytes, and which followers lag."""

from __future__ import annotations

import pytest

from ottla.broker.monitoring import metrics
from ottla.broker.monitoring.metrics import late_transaction_metrics, partition_metrics
from ottla.broker.partitions.partition_table import PartitionTable, Refusal
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.observe.metrics import PAUSE, CollectorRegistry
from ottla.records.header import BASE_OFFSET, LEADER_EPOCH, LEADER_EPOCH_AT
from tests.unit.broker.partitions.test_partition_transactions import COMMIT, mark, produce
from tests.unit.broker.roles import ELSEWHERE, HERE, lead, one_of, replicated, resign
from tests.unit.broker.served_log import ServedLog, one_record, topic_id_of


def _scraped(log: ServedLog, table: PartitionTable | None = None) -> list[str]:
    if table is None:
        table = PartitionTable()
        table.add(log.partition)
    registry = CollectorRegistry()
    registry.add(lambda: partition_metrics(table, log.directory, log.clock.monotonic_ms()))
    return [line for line in "".join(registry.chunks()).splitlines() if not line.startswith("#")]


def test_leader_counts_what_it_takes_as_produced() -> None:
    log = ServedLog("t")
    size_bytes = log.add() + log.add()
    lines = _scraped(log)
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 2' in lines
    assert f'kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {size_bytes}' in lines
    assert "kafka_server_brokertopicmetrics_replicationbytesin_total 0" in lines
    assert "kafka_server_replicamanager_leadercount 1" in lines
    assert "kafka_server_replicamanager_underreplicatedpartitions 0" in lines


def _late_transactions(log: ServedLog, open_since_ms: int) -> int:
    table = PartitionTable()
    table.add(log.partition)
    registry = CollectorRegistry()
    registry.add(lambda: late_transaction_metrics(table, open_since_ms))
    name = "kafka_server_replicamanager_partitionswithlatetransactionscount "
    [line] = [line for line in "".join(registry.chunks()).splitlines() if line.startswith(name)]
    return int(line.removeprefix(name))


def test_transaction_is_late_when_no_batch_of_it_came_for_long_and_it_has_no_marker() -> None:
    log = ServedLog("t")
    start_ms = log.clock.now_ms()
    produce(log, 0)
    assert "kafka_server_replicamanager_produceridcount 1" in _scraped(log)
    assert _late_transactions(log, start_ms - 1) == 0
    assert _late_transactions(log, start_ms) == 1
    log.clock.advance(60_000)
    produce(log, 1)
    assert _late_transactions(log, start_ms) == 0
    resign(log.partition)
    assert _late_transactions(log, start_ms + 60_000) == 0
    lead(log.partition, 5)
    assert _late_transactions(log, start_ms + 60_000) == 1
    mark(log, COMMIT, 1)
    assert _late_transactions(log, start_ms + 60_000) == 0


def test_follower_counts_what_it_takes_as_replicated_and_keeps_its_sums_when_roles_change() -> None:
    log = ServedLog("t", leader_epoch=None)
    both = one_of(HERE, ELSEWHERE)
    log.partition.on_state(replicated(HERE, 1, 1), both, 0)
    produced_bytes = log.add()
    log.partition.on_state(replicated(ELSEWHERE, 2, 2), both, 0)
    run = one_record()
    BASE_OFFSET.pack_into(run, 0, log.partition.log_end_offset)
    LEADER_EPOCH.pack_into(run, LEADER_EPOCH_AT, 2)
    log.log.append_run(memoryview(run), 0)
    log.partition.on_state(replicated(HERE, 3, 3), both, 0)
    produced_bytes += log.add()
    lines = _scraped(log)
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 2' in lines
    assert f'kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {produced_bytes}' in lines
    assert f"kafka_server_brokertopicmetrics_replicationbytesin_total {len(run)}" in lines
    assert 'kafka_log_log_logendoffset{topic="t",partition="0"} 3' in lines


def test_partition_with_a_replica_out_of_sync_is_under_replicated() -> None:
    log = ServedLog("t", leader_epoch=None)
    log.partition.on_state(replicated(HERE, 1, 1, in_sync=(HERE,)), one_of(HERE, ELSEWHERE), 0)
    log.add()
    lines = _scraped(log)
    assert "kafka_server_replicamanager_underreplicatedpartitions 1" in lines
    assert "kafka_server_replicamanager_underminisrpartitioncount 0" in lines
    assert 'kafka_cluster_partition_insyncreplicascount{topic="t",partition="0"} 1' in lines
    assert f'ottla_follower_lag_records{{topic="t",partition="0",follower="{ELSEWHERE}"}} 1' in lines
    assert any(line.startswith("ottla_follower_lag_bytes{") and not line.endswith(" 0") for line in lines)


def test_follower_that_does_not_fetch_lags_by_records_and_by_time() -> None:
    log = ServedLog("t", leader_epoch=None)
    log.partition.on_state(replicated(HERE, 1, 1), one_of(HERE, ELSEWHERE), log.clock.monotonic_ms())
    log.add()
    log.add()
    log.clock.advance(5_000)
    lines = _scraped(log)
    assert f'ottla_follower_lag_records{{topic="t",partition="0",follower="{ELSEWHERE}"}} 2' in lines
    assert f'ottla_follower_lag_seconds{{topic="t",partition="0",follower="{ELSEWHERE}"}} 5.0' in lines


def test_others_run_while_the_lags_of_many_partitions_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_PAUSE_AFTER", 2)
    table = PartitionTable()
    for name in "abcde":
        log = ServedLog(name, leader_epoch=None)
        log.partition.on_state(replicated(HERE, 1, 1), one_of(HERE, ELSEWHERE), 0)
        table.add(log.partition)
    assert list(partition_metrics(table, log.directory, 0)).count(PAUSE) == 2
    assert sum(line.startswith("ottla_follower_lag_bytes{") for line in _scraped(log, table)) == 5


def test_refused_partition_is_offline() -> None:
    log = ServedLog("t")
    table = PartitionTable()
    table.add(log.partition)
    table.refuse(TopicPartition("t", 1), Refusal(topic_id_of("t"), ErrorCode.KAFKA_STORAGE_ERROR))
    lines = _scraped(log, table)
    assert "kafka_server_replicamanager_offlinereplicacount 1" in lines
    assert "kafka_server_replicamanager_partitioncount 2" in lines
