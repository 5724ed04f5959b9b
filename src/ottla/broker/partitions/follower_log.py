"""A follower's log takes what its leader answered: records, a cut, or a new start."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.observe.events import fields
from ottla.protocol.replica_fetch import FetchedPartition
from ottla.replication.following import FollowerAction, FollowerStep
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


def apply_fetched(
    replica: Replica, log: Log, request_id: int, answer: FetchedPartition, now_ms: int
) -> AppliedFetch | FollowerStep:
    """Carry out what `replica` makes of the leader's answer to the fetch `request_id`, or return the cut it requires.

    An answer to another fetch than the present one changes nothing.  Raises `StorageError` when the disk fails.
    """
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


async def cut_log(replica: Replica, log: Log, step: FollowerStep, offload: Offload) -> None:
    """Truncate or reset the log of a follower, while it follows the leader that it follows now."""
    is_wanted = _follows_on(replica)
    # Not by `step.offset`: a leader whose log begins above may have the whole of this one dropped, and the part that
    # it never had goes with the rest.  What it had and deleted is no loss.
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


async def begin_log(replica: Replica, log: Log, records: bytearray, now_ms: int, offload: Offload) -> None:
    """Begin the empty log of a follower with records from below its end, while it follows the same leader."""
    try:
        if await log.begin_with_run(memoryview(records), now_ms, offload, _follows_on(replica)):
            replica.on_reset()
    except AppendRefused as error:
        _log.error("replica.append_refused", extra=fields(partition=log.topic_partition, reason=str(error)))
        raise


def _follows_on(replica: Replica) -> Callable[[], bool]:
    """Whether it still follows whom it follows now."""
    followed = (replica.role, replica.leader, replica.leader_epoch)
    return lambda: (replica.role, replica.leader, replica.leader_epoch) == followed
