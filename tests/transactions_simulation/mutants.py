"""Known bugs, planted one at a time: each must break a guarantee within a bounded number of seeds.

The product has no switches for them: they are patched in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.groups.commands import WriteMarker
from ottla.groups.group_table import GroupTable
from ottla.groups.pending_offsets import OffsetPlace, PendingOffsets
from ottla.groups.shard import GroupShard
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.records.end_marker import EndMarker
from ottla.records.header import BatchHeader
from ottla.runtime.clock import Moment
from ottla.storage.producers.aborted_transactions import AbortedIndex, AbortedTransaction
from ottla.storage.producers.log_transactions import LogTransactions, VerificationGuard
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.producers.producer_state import NO_OFFSET, ProducerStates
from ottla.transactions import decisions, shard
from ottla.transactions.commands import EndTransaction, InitProducer, ProducerReply
from ottla.transactions.decisions import Known, Outcome
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.shard import TransactionShard
from ottla.transactions.transaction import SAME_EPOCH, Transaction, TransactionState
from ottla.transactions.transaction_records import TransactionRecord
from tests.seeds.planted import Mutant
from tests.transactions_simulation import checks, partition
from tests.transactions_simulation.coordinator import CoordinatorPartition, Serving
from tests.transactions_simulation.offsets_partition import ShardLog
from tests.transactions_simulation.plan import Plan

_answer: Final = TransactionShard._answer
_write: Final = TransactionShard._write
_append: Final = Serving.append
_write_markers: Final = Serving.write_markers
_is_final: Final = Serving._is_final
_fence: Final = decisions.fence
_complete: Final = decisions.complete
_init: Final = decisions._init
_end_with_next_epoch: Final = decisions._end_with_next_epoch
_guard: Final = LogTransactions.guard
_check_marker: Final = LogTransactions.check_marker
_marker_appended: Final = LogTransactions.marker_appended
_truncated: Final = LogTransactions.truncated
_replay: Final = GroupTable.replay


def answer_at_once(self: TransactionShard, reply: Callable[[Any], None], value: object) -> None:
    reply(value)


def apply_what_was_refused(
    self: TransactionShard, transactional_id: str, transaction: Transaction | None, moment: Moment
) -> ErrorCode:
    if _write(self, transactional_id, transaction, moment) is not ErrorCode.NONE:
        self._apply(transactional_id, transaction)
    return ErrorCode.NONE


def serve_always(self: CoordinatorPartition, serving: Serving) -> bool:
    return True


def answer_without_lease(self: CoordinatorPartition) -> bool:
    return True


def load_below_the_high_watermark(self: CoordinatorPartition, serving: Serving) -> list[TransactionRecord]:
    return serving.records[: self.high_watermark]


def load_without_decisions(self: TransactionShard, moment: Moment, end_offset: int = 0) -> None:
    """A decided transaction is left as it is."""
    self._appended_end = end_offset


def reverse_after_a_load(self: Serving, markers: EndMarkers) -> None:
    _write_markers(self, markers._replace(commits=not markers.commits) if self.epoch else markers)


def complete_as_aborted(transaction: Transaction, now_ms: int) -> Transaction:
    return _complete(transaction, now_ms)._replace(state=TransactionState.COMPLETE_ABORT)


def mark_with_the_epoch_of_the_data(self: Serving, markers: EndMarkers) -> None:
    epoch = markers.producer_epoch - markers.advances_epoch
    _write_markers(self, markers._replace(producer_epoch=epoch))


def never_a_repeat(found: Transaction, given: tuple[int, int]) -> bool:
    return False


def fence_twice(transaction: Transaction, now_ms: int) -> Transaction:
    fenced = _fence(transaction, now_ms)
    return fenced._replace(producer_epoch=fenced.producer_epoch + 1)


def fence_with_the_same_epoch(transaction: Transaction, now_ms: int) -> Transaction:
    return _fence(transaction, now_ms)._replace(producer_epoch=transaction.producer_epoch, client_version=SAME_EPOCH)


def answer_the_old_id(known: Known, command: EndTransaction, now_ms: int) -> Outcome:
    outcome = _end_with_next_epoch(known, command, now_ms)
    if outcome.change is None or not outcome.change.state.is_prepared:
        return outcome
    reply = ProducerReply(ErrorCode.NONE, outcome.change.producer_id, outcome.change.producer_epoch)
    return outcome._replace(reply=reply)


def any_identity_continues(known: Known, command: InitProducer, now_ms: int) -> Outcome:
    return _init(known, command._replace(producer_id=-1, producer_epoch=-1), now_ms)


def never_late(known: Known, connection: int) -> bool:
    return False


def refuse_after_the_append(self: Serving, records: Sequence[TransactionRecord], now_ms: int) -> int:
    """The outcome of an append is not known, and it is taken as refused."""
    end = _append(self, records, now_ms)
    if self._simulation.draws(0.05):
        raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "it may be there")
    return end


def stop_without_a_leader(self: Serving, error: ErrorCode) -> bool:
    return _is_final(self, error) or error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def any_coordinator(
    self: LogTransactions, producer_id: int, epoch: int, coordinator_epoch: int, *, advances_epoch: bool
) -> bool:
    return _check_marker(self, producer_id, epoch, 1 << 30, advances_epoch=advances_epoch)


def equal_epoch_closes(
    self: LogTransactions, producer_id: int, epoch: int, coordinator_epoch: int, *, advances_epoch: bool
) -> bool:
    return _check_marker(self, producer_id, epoch, coordinator_epoch, advances_epoch=False)


def keep_guards(self: LogTransactions, header: BatchHeader, marker: EndMarker, now_ms: int) -> None:
    kept = self._guards.get(header.producer_id)
    _marker_appended(self, header, marker, now_ms)
    if kept is not None:
        self._guards[header.producer_id] = kept


def no_guard(
    self: LogTransactions, producer_id: int, epoch: int, first_sequence: int, *, advances_epoch: bool = False
) -> VerificationGuard | None:
    _guard(self, producer_id, epoch, first_sequence, advances_epoch=advances_epoch)
    return None


def need_no_guard(
    self: LogTransactions, producer_id: int, epoch: int, first_sequence: int, guard: VerificationGuard | None
) -> None:
    """Every transactional batch opens a transaction."""


def stable_below_open_ones(self: LogTransactions, high_watermark: int, log_start_offset: int) -> int:
    first_open_offset = self.first_open_offset()
    return high_watermark if first_open_offset is None else min(high_watermark, first_open_offset)


def forget_open_ones(self: LogTransactions, states: ProducerStates, end_offset: int) -> None:
    _truncated(self, states, end_offset)
    self.open.clear()
    self.unstable.clear()


def keep_the_index(self: AbortedIndex, end_offset: int) -> None:
    """A cut leaves the markers that it removes."""


def decode_without_open_ones(data: bytes) -> ProducerStates:
    states = decode_snapshot(data)
    for _, entry in states.entries():
        entry.current_txn_first_offset = NO_OFFSET
    return states


def find_in_one_file(ended: Iterable[AbortedTransaction], start: int, end: int) -> list[AbortedTransaction]:
    """A file is taken to hold one transaction that ends above the start."""
    return [each for each in ended if each.last_offset >= start and each.first_offset < end][:1]


def show_at_once(self: GroupTable, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
    _replay(self, key, value)


def never_overtaken(self: PendingOffsets, place: OffsetPlace, number: int | None = None) -> None:
    """An older pending offset wins."""


def acknowledge_before_applying(
    self: GroupShard, command: WriteMarker, reply: Callable[[ErrorCode], None], moment: Moment
) -> None:
    """The offsets take effect a little after the acknowledgement."""
    log = self._log
    assert isinstance(log, ShardLog)
    try:
        end = log.append_marker(command, moment.wall_ms)
    except OttlaError as error:
        self.answer(reply, error.error_code)
        return
    if end is not None:
        self._appended_end = end
        log.later(lambda: self.replay_marker(command.producer_id, commits=command.marker.commits))
    self.answer(reply, ErrorCode.NONE)


def as_it_is(plan: Plan) -> Plan:
    return plan


def moving(plan: Plan) -> Plan:
    """Coordinators and leaders move, and do not know it at once."""
    return replace(
        plan,
        fault_kinds=("move_coordinator", "move_leader", "lost_requests", "lost_answers"),
        fault_interval_ms=60,
        replication_ms=30,
        zombie_ms=400,
        lost_share=0.1,
    )


def moving_with_one_epoch(plan: Plan) -> Plan:
    return replace(moving(plan), advances_epoch=False, first_epoch=0, timeout_ms=5_000)


def late_to_know_with_one_epoch(plan: Plan) -> Plan:
    """A replaced coordinator still writes markers when the next transaction is open."""
    return replace(moving_with_one_epoch(plan), zombie_ms=2_000)


def refusing(plan: Plan) -> Plan:
    return replace(plan, refused_share=0.1)


def late(plan: Plan) -> Plan:
    """What was lost arrives later, and nothing moves."""
    return replace(
        plan, fault_kinds=("lost_requests", "lost_answers"), lost_share=0.1, advances_epoch=True, timeout_ms=5_000
    )


def without_answers(plan: Plan) -> Plan:
    return replace(late(plan), fault_kinds=("lost_answers",))


def late_with_one_epoch(plan: Plan) -> Plan:
    return replace(late(plan), advances_epoch=False, first_epoch=0)


def timing_out(plan: Plan) -> Plan:
    return replace(late(plan), fault_kinds=("lost_requests", "lost_answers", "stall"), timeout_ms=300)


def timing_out_with_one_epoch(plan: Plan) -> Plan:
    return replace(timing_out(plan), advances_epoch=False, first_epoch=0)


def late_data_with_one_epoch(plan: Plan) -> Plan:
    """Many producers give a record up that arrives later."""
    return replace(late_with_one_epoch(plan), lost_share=0.25, partitions_count=3, ids_count=3)


def exhausted(plan: Plan) -> Plan:
    return replace(late(plan), first_epoch=32_755)


def with_offsets(plan: Plan) -> Plan:
    return replace(plan, commits_offsets=True)


def taken_over(plan: Plan) -> Plan:
    return replace(late(plan), fault_kinds=("take_over", "lost_answers"), fault_interval_ms=60)


MUTANTS: Final = {
    mutant.bug: mutant
    for mutant in (
        Mutant("an end is answered before it is stable", ((TransactionShard, "_answer", answer_at_once),), moving),
        Mutant("memory changes without the log", ((TransactionShard, "_write", apply_what_was_refused),), refusing),
        Mutant("commands are served while loading", ((CoordinatorPartition, "may_serve", serve_always),), moving),
        Mutant(
            "a replaced coordinator answers",
            ((CoordinatorPartition, "answers_without_lease", answer_without_lease),),
            moving_with_one_epoch,
        ),
        Mutant(
            "a load ends at the high watermark",
            ((CoordinatorPartition, "records_to_load", load_below_the_high_watermark),),
            moving,
        ),
        Mutant("a load drops decisions", ((TransactionShard, "loaded", load_without_decisions),), moving),
        Mutant("a load reverses decisions", ((Serving, "write_markers", reverse_after_a_load),), moving),
        Mutant("a commit is completed as an abort", ((shard, "complete", complete_as_aborted),), as_it_is),
        Mutant(
            "markers of replaced coordinators are written",
            ((LogTransactions, "check_marker", any_coordinator),),
            late_to_know_with_one_epoch,
        ),
        Mutant(
            "markers have the epoch of the data", ((Serving, "write_markers", mark_with_the_epoch_of_the_data),), late
        ),
        Mutant(
            "a late marker closes the next transaction", ((LogTransactions, "check_marker", equal_epoch_closes),), late
        ),
        Mutant("a repeated end is refused", ((decisions, "_is_repeated", never_a_repeat),), without_answers),
        Mutant(
            "a guard survives a marker", ((LogTransactions, "marker_appended", keep_guards),), late_data_with_one_epoch
        ),
        Mutant(
            "nothing is verified",
            ((LogTransactions, "guard", no_guard), (LogTransactions, "_check_guard", need_no_guard)),
            late_with_one_epoch,
        ),
        Mutant(
            "a fence advances the epoch twice",
            ((decisions, "fence", fence_twice), (shard, "fence", fence_twice)),
            timing_out,
        ),
        Mutant(
            "an exhausted producer keeps its id", ((decisions, "_end_with_next_epoch", answer_the_old_id),), exhausted
        ),
        Mutant("a time-out keeps the epoch", ((shard, "fence", fence_with_the_same_epoch),), timing_out_with_one_epoch),
        Mutant(
            "the last stable offset passes markers that may be cut",
            ((LogTransactions, "last_stable_offset", stable_below_open_ones),),
            moving,
        ),
        Mutant("a new leader has no open transactions", ((LogTransactions, "truncated", forget_open_ones),), moving),
        Mutant("a cut keeps aborted transactions", ((AbortedIndex, "truncate_to", keep_the_index),), moving),
        Mutant(
            "a search ends in the first file",
            ((checks, "aborted_between", find_in_one_file), (partition, "aborted_between", find_in_one_file)),
            as_it_is,
        ),
        Mutant(
            "snapshots have no open transactions", ((partition, "decode_snapshot", decode_without_open_ones),), moving
        ),
        Mutant("any identity continues", ((decisions, "_init", any_identity_continues),), taken_over),
        Mutant(
            "a late end of an older connection is accepted", ((decisions, "_is_late", never_late),), late_with_one_epoch
        ),
        Mutant("markers stop without a leader", ((Serving, "_is_final", stop_without_a_leader),), moving),
        Mutant(
            "an append of unknown outcome counts as refused", ((Serving, "append", refuse_after_the_append),), as_it_is
        ),
        Mutant("a pending offset is visible", ((GroupTable, "replay", show_at_once),), with_offsets),
        Mutant("an older pending offset wins", ((PendingOffsets, "overtake", never_overtaken),), with_offsets),
        Mutant(
            "a marker is acknowledged before its offsets take effect",
            ((GroupShard, "_write_marker", acknowledge_before_applying),),
            with_offsets,
        ),
    )
}
