"""Changes the transactional ids of a broker that is stopped: states that take long to come about, and lost ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.model.group_partition import partition_of
from ottla.model.identifiers import TRANSACTIONS_TOPIC, TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.header import HEADER
from ottla.runtime.clock import SystemClock
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory
from ottla.transactions.transaction import Transaction
from ottla.transactions.transaction_records import transaction_record

# `transaction.state.log.num.partitions`.
PARTITIONS_COUNT: Final = 50


def set_transactions(data_dir: Path, changed: Mapping[str, Transaction | None]) -> None:
    """Let the coordinator find these states at its next start; None: it does not know the id any more."""
    clock = SystemClock()
    directory = LogDirectory.open(PosixDisk(), str(data_dir), clock=clock)
    for transactional_id, transaction in changed.items():
        index = partition_of(transactional_id, PARTITIONS_COUNT)
        builder = BatchBuilder()
        builder.append(clock.now_ms(), *transaction_record(transactional_id, transaction))
        batch = builder.build()
        log = directory.logs[TopicPartition(TRANSACTIONS_TOPIC, index)]
        log.append(memoryview(batch), HEADER.unpack_from(batch), clock.now_ms())
    directory.close()
