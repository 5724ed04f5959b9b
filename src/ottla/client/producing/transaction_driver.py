"""Makes the calls of a producer's transactions to their coordinators, one at a time, on the producer's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.client.groups.groups import CoordinatorKind, Coordinators
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.transaction_machine import CoordinatorCall, TransactionMachine
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, ConnectionLost
from ottla.model.errors import WireError

# The feature of KIP-890, and its level from which on leaders add partitions, and each end advances the epoch.
_FEATURE: Final = "transaction.version"
IMPLICIT_LEVEL: Final = 2


class TransactionDriver:
    """The machine under the monitor's lock.  Only the producer's thread makes calls.

    `on_end` is called with the lock, before a user learns of it: whether a transaction has committed, None when the
    producer has failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        timeout_ms: int,
        monitor: ProducerMonitor,
        on_end: Callable[[bool | None], None],
    ) -> None:
        self.machine: Final = TransactionMachine(transactional_id, timeout_ms, cluster.retrying)
        self._cluster = cluster
        self._transactions = Coordinators(cluster, CoordinatorKind.TRANSACTION)
        self._groups = Coordinators(cluster)
        self._monitor = monitor
        self._on_end = on_end

    def make_calls(self, is_idle: Callable[[], bool]) -> None:
        """All that are due.  `is_idle`, called with the lock: whether no batch is under way."""
        while True:
            with self._monitor.lock:
                call = self.machine.next_call(is_idle=is_idle())
                self._conclude()
            if call is None:
                return
            self._make(call)

    def _make(self, call: CoordinatorCall) -> None:
        offers_implicit: bool | None = None
        try:
            deadline = self._cluster.retrying.deadline()
            if call.group_id is None:
                connection = self._transactions.connect(self.machine.transactional_id, deadline)
                offers_implicit = connection.feature_level(_FEATURE) >= IMPLICIT_LEVEL
            else:
                connection = self._groups.connect(call.group_id, deadline)
            try:
                answer: object = connection.call(
                    call.api, call.message, call.answer, deadline, at_least=call.at_least, at_most=call.at_most
                )
            except WireError as error:
                raise ConnectionLost(f"the coordinator's answer cannot be read: {error}") from error
        except ClientError as error:
            self._forget(call)
            with self._monitor.lock:
                self.machine.on_lost(call, error)
                self._conclude()
            return
        with self._monitor.lock:
            if offers_implicit is not None:
                self.machine.on_connected(offers_implicit=offers_implicit)
            has_moved = self.machine.on_answer(call, answer)
            self._conclude()
        if has_moved:
            self._forget(call)

    def _conclude(self) -> None:
        has_committed = self.machine.take_outcome()
        if has_committed is not None or self.machine.has_failed:
            self._on_end(has_committed)
        self._monitor.announce()

    def _forget(self, call: CoordinatorCall) -> None:
        """The coordinator is looked up before its next call."""
        if call.group_id is None:
            self._transactions.forget(self.machine.transactional_id)
        else:
            self._groups.forget(call.group_id)
