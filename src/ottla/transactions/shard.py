"""The transactional ids of one partition of `__transaction_state`: decide, log, apply (decision 9).

A command is decided on the applied state, its record is appended, and `_apply`, the function that start-up uses too,
applies it.  The reply leaves when the log is stable up to the record, and so does the request for the markers of a
decided transaction: nothing outside of this broker follows from a state that another coordinator may not find.

A command that has to wait for the markers of the last transaction, or for a new producer id, is parked and decided
again when they are there; commands of one id keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Protocol

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_PRODUCER_ID, TopicPartition
from ottla.runtime.clock import Moment
from ottla.runtime.held_replies import HeldReplies
from ottla.transactions.commands import (
    NO_CONNECTION,
    AddPartitions,
    Command,
    DescribedTransaction,
    DescribeTransaction,
    EndTransaction,
    IdCommand,
    InitProducer,
    ListedTransaction,
    ListReply,
    ListTransactions,
    ProducerReply,
    refusal,
    refused,
)
from ottla.transactions.decisions import Identity, Known, complete, decide, fence
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.transaction import NEXT_EPOCH, NO_EPOCH, Transaction, TransactionState
from ottla.transactions.transaction_records import (
    TransactionRecord,
    decode_transaction,
    decode_transaction_key,
    transaction_record,
)

# Ids whose deadlines take effect in one `on_time`: after a long pause thousands may have passed, and others wait.
DEADLINES_PER_CALL: Final = 64
# Ids that one walk over all of them removes; the rest follow after other work.
EXPIRED_PER_CALL: Final = 256


class TransactionLog(Protocol):
    """Appends records.  Synchronous: `TransactionShard.on_stable` reports durability later."""

    @property
    def stable_end(self) -> int:
        """The offset below which records survive a crash, on every replica that may lead; exclusive."""
        ...

    def append(self, records: Sequence[TransactionRecord], now_ms: int) -> int:
        """Append `records` as one batch and return its exclusive end.  Raises `OttlaError` when nothing was
        appended."""
        ...


class TransactionServices(Protocol):
    """What a shard needs from its broker.  Neither call waits, and neither calls the shard before it returns."""

    def request_producer_id(self, transactional_id: str) -> None:
        """Allocate a producer id that was never used; then call `on_producer_id`."""
        ...

    def write_markers(self, markers: EndMarkers) -> None:
        """Write each marker until its partition has it or is deleted; then call `on_marker_written`.

        It may be called again with the same markers, while the first ones are being written: each has one request in
        flight, and its answer counts for both.  Where the end keeps the epoch, a second request that arrives after the
        next transaction has started would end that.
        """
        ...


class _Parked(NamedTuple):
    command: IdCommand
    reply: Callable[[Any], None]
    due_ms: int


class _Decided(NamedTuple):
    transactional_id: str
    transaction: Transaction


class _TransactionalId:
    """One transactional id: what the log has, and what is known beside it while this broker coordinates."""

    __slots__ = ("awaits_producer_id", "expires_ms", "known", "name", "parked", "queued_ms", "retry_ms", "unwritten")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.known = Known()
        self.parked: Final[deque[_Parked]] = deque()
        self.awaits_producer_id = False
        # Partitions without a marker, while the transaction is prepared.
        self.unwritten: set[TopicPartition] = set()
        # Monotonic: when its open transaction times out; when an append is tried again.
        self.expires_ms: int | None = None
        self.retry_ms: int | None = None
        # The place of its newest entry in the heap of deadlines.
        self.queued_ms: int | None = None

    @property
    def next_due_ms(self) -> int | None:
        parked_ms = self.parked[0].due_ms if self.parked else None
        return min((each for each in (parked_ms, self.expires_ms, self.retry_ms) if each is not None), default=None)


class TransactionShard:
    """`coordinator_epoch` is the leader epoch of the shard's partition.

    No reply is called while a command is being decided, so a reply may submit the next command.
    """

    def __init__(
        self, log: TransactionLog, settings: TransactionSettings, services: TransactionServices, coordinator_epoch: int
    ) -> None:
        self.coordinator_epoch: Final = coordinator_epoch
        self._log: Final = log
        self._settings: Final = settings
        self._services: Final = services
        self._held: Final = HeldReplies()
        self._ids: Final[dict[str, _TransactionalId]] = {}
        self._due: Final[list[tuple[int, int, _TransactionalId]]] = []
        self._pushed_count = 0
        self._expiry_due_ms: int | None = None
        # Of all records that were applied: a producer id that is given later must be above it.
        self.greatest_producer_id = NO_PRODUCER_ID
        # The exclusive end of the newest record that is applied.
        self._appended_end = 0
        self._failure: ErrorCode | None = None

    def __len__(self) -> int:
        """The count of transactional ids."""
        return len(self._ids)

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Every id with its applied state."""
        for entry in list(self._ids.values()):
            if entry.known.transaction is not None:
                yield entry.name, entry.known.transaction

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record at start-up.  Raises `TransactionRecordError`; skips unknown versions of keys.

        None is in a transaction, so `producer_id` is not used.
        """
        transactional_id = decode_transaction_key(key)
        if transactional_id is not None:
            self._apply(transactional_id, None if value is None else decode_transaction(value))

    def _apply(self, transactional_id: str, transaction: Transaction | None) -> None:
        if transaction is None:
            self._ids.pop(transactional_id, None)
            return
        self.greatest_producer_id = max(
            self.greatest_producer_id, transaction.producer_id, transaction.next_producer_id
        )
        if transaction.state is TransactionState.DEAD:
            self._ids.pop(transactional_id, None)
            return
        entry = self._ids.get(transactional_id)
        if entry is None:
            entry = self._ids[transactional_id] = _TransactionalId(transactional_id)
        entry.known = entry.known._replace(transaction=transaction)
        entry.unwritten = set(transaction.partitions) if transaction.state.is_prepared else set()

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """No transaction has this partition, so there is nothing to end."""

    def loaded(self, moment: Moment, end_offset: int = 0) -> None:
        """All records up to `end_offset`, the end of the log, are applied.

        Decided transactions are completed when the log is stable up to there: what the last coordinator appended may be
        cut off by another one until then.
        """
        self._appended_end = end_offset
        self._expiry_due_ms = moment.monotonic_ms + self._settings.expiry_check_ms
        self._start(moment)

    def _start(self, moment: Moment) -> None:
        for entry in list(self._ids.values()):
            self._applied(entry, moment)
        self._held.release(self._log.stable_end)

    # The type of the reply depends on the command: see `commands`.
    def submit(self, command: Command, reply: Callable[[Any], None], moment: Moment) -> None:
        """Decide `command`; `reply` is called exactly once, now or later, with the type that the command names."""
        if self._failure is not None:
            reply(refusal(command, self._failure))
            return
        if isinstance(command, DescribeTransaction):
            self._answer(reply, self._describe(command))
        elif isinstance(command, ListTransactions):
            self._answer(reply, self._list(command, moment))
        else:
            self._submit_to_id(command, reply, moment)
        self._held.release(self._log.stable_end)

    def _submit_to_id(self, command: IdCommand, reply: Callable[[Any], None], moment: Moment) -> None:
        error = self._problem_of(command)
        entry = self._ids.get(command.transactional_id)
        if error is not ErrorCode.NONE:
            self._answer(reply, refusal(command, error))
            return
        if entry is None:
            if not isinstance(command, InitProducer):
                self._answer(reply, refusal(command, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
                return
            entry = self._ids[command.transactional_id] = _TransactionalId(command.transactional_id)
        parked = _Parked(command, reply, moment.monotonic_ms + self._settings.park_max_ms)
        if entry.parked or not self._run(entry, parked, moment):
            entry.parked.append(parked)
            self._arm(entry)
        self._forget_if_vacant(entry)

    def _problem_of(self, command: IdCommand) -> ErrorCode:
        if not command.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if isinstance(command, InitProducer):
            if (command.producer_id == NO_PRODUCER_ID) != (command.producer_epoch == NO_EPOCH):
                return ErrorCode.INVALID_REQUEST
            if not 0 < command.timeout_ms <= self._settings.timeout_max_ms:
                return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def _run(self, entry: _TransactionalId, parked: _Parked, moment: Moment) -> bool:
        """Decide a command; False when it has to wait."""
        command, reply, _ = parked
        outcome = decide(entry.known, command, moment.wall_ms)
        if outcome.change is not None:
            error = self._change(entry, outcome.change, outcome.last, moment)
            if error is not ErrorCode.NONE:
                self._answer(reply, refusal(command, error))
                return True
        if outcome.needs_producer_id and not entry.awaits_producer_id:
            entry.awaits_producer_id = True
            self._services.request_producer_id(entry.name)
        if outcome.reply is None:
            return False
        if isinstance(command, AddPartitions | EndTransaction) and _is_accepted(outcome.reply):
            entry.known = entry.known._replace(connection=max(entry.known.connection, command.connection))
        self._answer(reply, outcome.reply)
        return True

    def _run_parked(self, entry: _TransactionalId, moment: Moment) -> None:
        while entry.parked and self._run(entry, entry.parked[0], moment):
            entry.parked.popleft()
        self._arm(entry)
        self._forget_if_vacant(entry)

    def _describe(self, command: DescribeTransaction) -> DescribedTransaction:
        if not command.transactional_id:
            return DescribedTransaction(ErrorCode.INVALID_REQUEST, "")
        entry = self._ids.get(command.transactional_id)
        found = None if entry is None else entry.known.transaction
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else ErrorCode.NONE
        return DescribedTransaction(error, command.transactional_id, found)

    def _list(self, command: ListTransactions, moment: Moment) -> ListReply:
        listed = []
        for name, transaction in self.transactions():
            is_running = transaction.state is TransactionState.ONGOING or transaction.state.is_prepared
            running_ms = moment.wall_ms - transaction.started_ms if is_running else -1
            if (
                (not command.states or transaction.state.title in command.states)
                and (not command.producer_ids or transaction.producer_id in command.producer_ids)
                and (command.running_ms < 0 or running_ms > command.running_ms)
                and (command.matches is None or command.matches(name))
            ):
                listed.append(ListedTransaction(name, transaction.producer_id, transaction.state.title))
        return ListReply(ErrorCode.NONE, listed)

    def on_stable(self, stable_end: int) -> None:
        """The log is stable below `stable_end`: replies and markers that waited for it leave, in their order."""
        self._held.release(stable_end)

    def on_producer_id(self, transactional_id: str, producer_id: int | None, moment: Moment) -> None:
        """A producer id was allocated, or None: the tree did not answer."""
        entry = self._ids.get(transactional_id)
        if entry is None or not entry.awaits_producer_id or self._failure is not None:
            return
        entry.awaits_producer_id = False
        if producer_id is None:
            parked = entry.parked.popleft() if entry.parked else None
            if parked is not None:
                self._answer(parked.reply, refusal(parked.command, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            entry.known = entry.known._replace(spare_producer_id=producer_id)
        self._run_parked(entry, moment)
        self._held.release(self._log.stable_end)

    def on_marker_written(
        self, transactional_id: str, producer: Identity, partition: TopicPartition, moment: Moment
    ) -> None:
        """`partition` has its marker of `producer`, an id and the marker's epoch, or was deleted."""
        entry = self._ids.get(transactional_id)
        found = None if entry is None else entry.known.transaction
        if entry is None or found is None:
            return
        if not found.state.is_prepared or (found.producer_id, found.producer_epoch) != producer:
            return
        entry.unwritten.discard(partition)
        if not entry.unwritten and self._failure is None:
            self._complete(entry, moment)
        self._held.release(self._log.stable_end)

    def _complete(self, entry: _TransactionalId, moment: Moment) -> None:
        assert entry.known.transaction is not None
        entry.retry_ms = None
        change = complete(entry.known.transaction, moment.wall_ms)
        if self._change(entry, change, entry.known.last, moment) is ErrorCode.NONE:
            self._run_parked(entry, moment)
        else:
            self._retry_later(entry, moment)

    def on_time(self, moment: Moment) -> None:
        """Handle deadlines that have passed.  When there are many, `next_due_ms` is still in the past afterwards: call
        again, after other work."""
        for _ in range(DEADLINES_PER_CALL):
            if not self._due or self._due[0][0] > moment.monotonic_ms:
                break
            queued_ms, _, entry = heappop(self._due)
            if entry.queued_ms == queued_ms:
                entry.queued_ms = None
                self._on_deadline(entry, moment)
        if self._expiry_due_ms is not None and self._expiry_due_ms <= moment.monotonic_ms:
            self._expiry_due_ms = moment.monotonic_ms + self._settings.expiry_check_ms
            self._expire(moment)
        self._held.release(self._log.stable_end)

    def next_due_ms(self) -> int | None:
        """The monotonic time at which `on_time` should be called next; calling too early is harmless."""
        all_due = (self._due[0][0] if self._due else None, self._expiry_due_ms)
        return min((due_ms for due_ms in all_due if due_ms is not None), default=None)

    def _on_deadline(self, entry: _TransactionalId, moment: Moment) -> None:
        now_ms = moment.monotonic_ms
        while entry.parked and entry.parked[0].due_ms <= now_ms:
            command, reply, _ = entry.parked.popleft()
            error = (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if entry.awaits_producer_id
                else ErrorCode.CONCURRENT_TRANSACTIONS
            )
            self._answer(reply, refusal(command, error))
        found = entry.known.transaction
        if entry.retry_ms is not None and entry.retry_ms <= now_ms:
            entry.retry_ms = None
            if found is not None and found.state.is_prepared and not entry.unwritten:
                self._complete(entry, moment)
        elif entry.expires_ms is not None and entry.expires_ms <= now_ms:
            entry.expires_ms = None
            if found is not None and found.state is TransactionState.ONGOING:
                last = (found.producer_id, found.producer_epoch)
                if self._change(entry, fence(found, moment.wall_ms), last, moment) is not ErrorCode.NONE:
                    entry.expires_ms = now_ms + self._settings.append_retry_ms
        self._run_parked(entry, moment)

    def _expire(self, moment: Moment) -> None:
        """Remove the ids that have had no transaction for long."""
        limit_ms = moment.wall_ms - self._settings.id_expiration_ms
        expired = [entry for entry in self._ids.values() if _is_idle(entry) and _updated_ms(entry) <= limit_ms]
        for entry in expired[:EXPIRED_PER_CALL]:
            if self._write(entry.name, None, moment) is not ErrorCode.NONE:
                return
        if len(expired) > EXPIRED_PER_CALL:
            self._expiry_due_ms = moment.monotonic_ms

    def _retry_later(self, entry: _TransactionalId, moment: Moment) -> None:
        entry.retry_ms = moment.monotonic_ms + self._settings.append_retry_ms
        self._arm(entry)

    def _arm(self, entry: _TransactionalId) -> None:
        due_ms = entry.next_due_ms
        if due_ms is not None and (entry.queued_ms is None or due_ms < entry.queued_ms):
            # The count keeps the heap from comparing entries.
            self._pushed_count += 1
            entry.queued_ms = due_ms
            heappush(self._due, (due_ms, self._pushed_count, entry))

    def fail_all(self, error: ErrorCode) -> None:
        """The partition leaves this broker, or its disk failed: every waiting request gets `error`.

        The shard is of no use afterwards: a submit is answered with the same error.
        """
        self._stop(error)
        self._due.clear()
        self._expiry_due_ms = None

    def suspend(self, error: ErrorCode) -> None:
        """This broker may have been replaced: every waiting request and every later one gets `error` until `resume`.

        The ids stay as they are, and `on_time` is not called meanwhile.
        """
        self._stop(error)

    def resume(self, moment: Moment) -> None:
        """No other broker has coordinated these ids: markers of decided transactions are requested again."""
        self._failure = None
        for entry in self._ids.values():
            # Its answer may have been dropped meanwhile.
            entry.awaits_producer_id = False
        self._start(moment)

    def _stop(self, error: ErrorCode) -> None:
        self._failure = error
        self._held.fail(lambda reply: refused(reply, error))
        for entry in list(self._ids.values()):
            while entry.parked:
                command, reply, _ = entry.parked.popleft()
                reply(refusal(command, error))
            self._forget_if_vacant(entry)

    def _change(self, entry: _TransactionalId, change: Transaction, last: Identity | None, moment: Moment) -> ErrorCode:
        """Log and apply a new state of an id; nothing has changed where an error is returned."""
        before = entry.known
        error = self._write(entry.name, change, moment)
        if error is not ErrorCode.NONE:
            return error
        is_spare_used = before.spare_producer_id in (change.producer_id, change.next_producer_id)
        # Another epoch is another incarnation of the producer, with other connections.
        is_new_epoch = before.transaction is None or change.next_identity != before.transaction.next_identity
        entry.known = Known(
            change,
            last,
            NO_CONNECTION if is_new_epoch else before.connection,
            None if is_spare_used else before.spare_producer_id,
        )
        self._applied(entry, moment)
        return ErrorCode.NONE

    def _write(self, transactional_id: str, transaction: Transaction | None, moment: Moment) -> ErrorCode:
        try:
            end = self._log.append([transaction_record(transactional_id, transaction)], moment.wall_ms)
        except OttlaError as error:
            return _coordinator_code(error)
        assert end > self._appended_end, (end, self._appended_end)
        self._appended_end = end
        # What the record says is not decoded again: it takes a tenth of a transaction's processor time.
        self._apply(transactional_id, transaction)
        return ErrorCode.NONE

    def _applied(self, entry: _TransactionalId, moment: Moment) -> None:
        """Start what follows from the applied state of an id."""
        found = entry.known.transaction
        if found is None:
            return
        entry.retry_ms = None
        if found.state is not TransactionState.ONGOING:
            entry.expires_ms = None
        elif entry.expires_ms is None:
            # The wall clock may have jumped since the start: a transaction is never given more than its time-out.
            spent_ms = min(max(moment.wall_ms - found.started_ms, 0), found.timeout_ms)
            entry.expires_ms = moment.monotonic_ms + found.timeout_ms - spent_ms
        if found.state.is_prepared and not entry.unwritten:
            # Every marker was written before, and the completion was not logged.
            entry.retry_ms = moment.monotonic_ms
        elif found.state.is_prepared:
            self._held.hold(self._appended_end, self._request_markers, _Decided(entry.name, found))
        self._arm(entry)

    def _request_markers(self, decided: object) -> None:
        """The decision is durable; or, with another value, the shard has ended before."""
        if not isinstance(decided, _Decided):
            return
        transactional_id, found = decided
        entry = self._ids.get(transactional_id)
        if entry is None or entry.known.transaction != found:
            return
        self._services.write_markers(
            EndMarkers(
                transactional_id,
                found.producer_id,
                found.producer_epoch,
                found.commits,
                found.client_version == NEXT_EPOCH,
                self.coordinator_epoch,
                frozenset(entry.unwritten),
            )
        )

    def _answer(self, reply: Callable[[Any], None], value: object) -> None:
        if self._failure is None:
            self._held.hold(self._appended_end, reply, value)
        else:
            # The disk failed during this decision: nothing will release the held replies.
            reply(refused(value, self._failure))

    def _forget_if_vacant(self, entry: _TransactionalId) -> None:
        """An id that was never logged is kept only while a command waits for its producer id."""
        if entry.known.transaction is None and not entry.parked and self._ids.get(entry.name) is entry:
            del self._ids[entry.name]


def _is_idle(entry: _TransactionalId) -> bool:
    """Whether no transaction is open and no command waits."""
    found = entry.known.transaction
    is_closed = found is not None and (found.state is TransactionState.EMPTY or found.state.is_complete)
    return is_closed and not entry.parked


def _updated_ms(entry: _TransactionalId) -> int:
    return -1 if entry.known.transaction is None else entry.known.transaction.updated_ms


def _is_accepted(reply: object) -> bool:
    error = reply.error if isinstance(reply, ProducerReply) else reply
    return error is ErrorCode.NONE


def _coordinator_code(error: OttlaError) -> ErrorCode:
    """What a client gets when the log refused a record."""
    code = error.error_code
    if code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}:
        return ErrorCode.NOT_COORDINATOR
    if code in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
