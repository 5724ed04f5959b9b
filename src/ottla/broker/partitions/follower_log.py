"""The log of a follower: what it fetches from its leader, and what an answer does to it: records, a cut, a start."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.observe.events import fields
from ottla.protocol.replica_fetch import FetchedPartition
from ottla.replication.following import FollowerAction, FollowerFetch, FollowerStep
from ottla.replication.replica import Replica
from ottla.runtime.offload import Offload
from ottla.storage.errors import AppendRefused, StorageError
from ottla.storage.log.log import Log

_log = logging.getLogger(__name__)

# The partition's state in the tree is, or soon will be, another one than this broker or the leader knows.
_OTHER_STATE: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
_BELOW_WATERMARK_HINT: Final = (
    "the leader lacks committed records: after an unclean election, or because its directory is an old copy; "
    "`log.cut_is_kept` names the directory that has them"
)


class AppliedFetch(enum.Enum):
    """What a follower does next."""

    # Wait until its log's end is stable, then fetch from there.
    APPENDED = "appended"
    # Fetch again at once.
    NOTHING = "nothing"
    # Another leader or epoch: wait for a newer state of the partition.
    STALE = "stale"
    # The leader could not answer, or its answer cannot be used: fetch again later.
    RETRY = "retry"


class FollowerLog:
    """The log of a partition that another broker leads; each call may move the high watermark, as the leader's does."""

    __slots__ = ("_log", "_on_watermark", "_replica")

    def __init__(self, log: Log, replica: Replica, on_watermark: Callable[[], None]) -> None:
        self._log: Final = log
        self._replica: Final = replica
        self._on_watermark: Final = on_watermark

    @property
    def is_being_cut(self) -> bool:
        """Whether a cut of the log is not durable yet: until then it takes nothing, and fetches nothing."""
        return self._log.is_being_cut

    def next_fetch(self) -> FollowerFetch | None:
        """What to fetch from the leader now; None without a leader, and while the log's end is not stable.

        The same fetch is returned until its answer, or another state of the tree, moves the position.
        """
        return None if self._log.is_being_cut else self._replica.next_fetch()

    def apply_fetched(self, request_id: int, answer: FetchedPartition, now_ms: int) -> AppliedFetch | FollowerStep:
        """Append the records of the leader's answer to the fetch `request_id`, or return the cut that it requires.

        An answer to another fetch than the present one changes nothing.  Raises `StorageError` when this broker's own
        disk fails.
        """
        try:
            return self._apply(request_id, answer, now_ms)
        finally:
            self._on_watermark()

    def _apply(self, request_id: int, answer: FetchedPartition, now_ms: int) -> AppliedFetch | FollowerStep:
        replica, log = self._replica, self._log
        step = replica.on_response(request_id, answer)
        action = step.action
        if action is FollowerAction.BACK_OFF:
            return AppliedFetch.STALE if answer.error_code in _OTHER_STATE else AppliedFetch.RETRY
        if action is FollowerAction.TRUNCATE or action is FollowerAction.RESET:
            return step
        if action is FollowerAction.APPEND:
            try:
                log.append_run(answer.records, now_ms)
            except AppendRefused as error:
                _log.error("replica.append_refused", extra=fields(partition=log.topic_partition, reason=str(error)))
                return AppliedFetch.RETRY
        # Retention and DeleteRecords of the leader hold here, too, as far as this replica knows what is committed.
        committed_start = min(answer.log_start_offset, replica.high_watermark)
        if action is not FollowerAction.DROP and committed_start > log.log_start_offset:
            log.delete_records_before(committed_start)
        return AppliedFetch.NOTHING if log.stable_end == log.log_end_offset else AppliedFetch.APPENDED

    async def cut(self, step: FollowerStep, offload: Offload) -> None:
        """Make the cut that `apply_fetched` returned; `offload` syncs.  Nothing happens if another state of the tree
        comes before it does.

        Raises `StorageError` when this broker's own disk fails.
        """
        await self._truncate_or_reset(step, offload)
        self._on_watermark()

    async def _truncate_or_reset(self, step: FollowerStep, offload: Offload) -> None:
        replica, log, is_wanted = self._replica, self._log, self._follows_on()
        # Not by `step.offset`: a leader whose log begins above may have the whole of this one dropped, and the part
        # that it never had goes with the rest.  What it had and deleted is no loss.
        if 0 <= step.parted_at < replica.high_watermark:
            facts = fields(
                partition=log.topic_partition,
                to_offset=step.parted_at,
                high_watermark=replica.high_watermark,
                log_end_offset=log.log_end_offset,
                leader=replica.leader,
                leader_epoch=replica.leader_epoch,
                hint=_BELOW_WATERMARK_HINT,
            )
            _log.error("log.cut_below_watermark", extra=facts)
            try:
                await log.keep_above(max(step.parted_at, log.log_start_offset), offload)
            except (OSError, StorageError) as error:
                # What the cut itself needs: it says whether it can be made.
                _log.warning("log.cut_not_kept", extra=fields(partition=log.topic_partition, reason=str(error)))
        if step.action is FollowerAction.TRUNCATE:
            try:
                await log.truncate_to(step.offset, offload, is_wanted)
            finally:
                replica.on_cut()
            return
        _log.warning("replica.reset", extra=fields(partition=log.topic_partition, start_offset=step.offset))
        if await log.reset_to(step.offset, offload, is_wanted):
            replica.on_reset()

    def begins_below(self, request_id: int, answer: FetchedPartition) -> bool:
        """Whether the empty log must begin below its end before it takes these records, by `begin_with`."""
        return (
            not answer.error_code
            and answer.diverging is None
            and self._replica.is_current_fetch(request_id)
            and self._log.begins_below(answer.records)
        )

    async def begin_with(self, records: bytearray, now_ms: int, offload: Offload) -> None:
        """Begin the empty log with these records; `offload` syncs.  As `cut`."""
        log = self._log
        try:
            if await log.begin_with_run(memoryview(records), now_ms, offload, self._follows_on()):
                self._replica.on_reset()
        except AppendRefused as error:
            _log.error("replica.append_refused", extra=fields(partition=log.topic_partition, reason=str(error)))
            raise
        self._on_watermark()

    def _follows_on(self) -> Callable[[], bool]:
        """Whether it still follows the leader that it follows now."""
        replica = self._replica
        followed = (replica.role, replica.leader, replica.leader_epoch)
        return lambda: (replica.role, replica.leader, replica.leader_epoch) == followed
