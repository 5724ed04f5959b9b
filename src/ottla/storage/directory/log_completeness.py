"""From which broker epoch on a directory's logs hold everything that this broker reported of them.

(Broker epoch: the change id of a broker's registration in the tree.)  A replica is in sync under the epoch of one
registration.  After a restart the broker may confirm that entry only if its log still holds what it reported then.  The
log is incomplete when the directory is new, when the machine restarted after an unclean stop under flush policy `os`,
or when the log was set aside and recreated.  An incomplete log is recorded, durably, before anything that shows the
loss is removed.  The record ends with the next registration (`set_complete_from`), or with the present one where the
log reported nothing under it yet: a longer record would make a restart give up what the log has fetched since.

`ottla.kept.from` in meta.properties holds for all logs of the directory; `kept-from` lists the logs that lost records
later, in the format of Kafka's checkpoints.  Epoch 0 there marks a log that counts as complete although the directory
does not: the only replica of its partition, in a copy that an operator accepted (`ottla cluster rejoin`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import INLINE, Offload
from ottla.storage import checkpoints
from ottla.storage.errors import StorageError

KEPT_FROM: Final = "ottla.kept.from"
NOT_KEPT: Final = "nothing"
# Above every epoch.
_NEVER: Final = 2**63 - 1
# Below every epoch.
_ALWAYS: Final = 0


class LogCompleteness:
    """Every change is on the device when its call returns; `offload` writes it.  Raises `OSError`: call it again."""

    def __init__(self, disk: Disk, directory: str, *, has_logs: bool) -> None:
        """`has_logs`: the logs of a directory that an older version wrote, without this record, count as complete."""
        self._disk = disk
        self._directory = directory
        text = (checkpoints.read_meta_properties(disk, directory) or {}).get(KEPT_FROM)
        self.complete_from = _parsed(text, directory, has_logs=has_logs)
        lost = checkpoints.read_kept_from(disk, directory)
        if lost is None:
            # The file is damaged: the logs that lost records are unknown.
            self.complete_from = None
        self._lost_until: dict[TopicPartition, int] = lost or {}
        # One change at a time: each starts from what the one before it wrote.
        self._changing = Mutex()
        if self.complete_from is None and _ALWAYS in self._lost_until.values():
            # Marks of an earlier start; `count_sole_replicas_complete` sets those that still hold.
            self._lost_until = {name: epoch for name, epoch in self._lost_until.items() if epoch != _ALWAYS}
            self._write_nothing_kept()

    def is_complete(self, topic_partition: TopicPartition, broker_epoch: int) -> bool:
        """Whether the log has all that was reported of it under that epoch."""
        lost_until = self._lost_until.get(topic_partition)
        if lost_until == _ALWAYS:
            return True
        return self.complete_from is not None and broker_epoch >= max(self.complete_from, lost_until or 0)

    async def mark_incomplete(
        self, partitions: Iterable[TopicPartition], broker_epoch: int | None = None, offload: Offload = INLINE
    ) -> None:
        """These logs may lack what was reported under earlier epochs than `broker_epoch` (the present registration's,
        if nothing was reported of them under it yet), or under all epochs up to the next registration (None).
        """
        until = _NEVER if broker_epoch is None else broker_epoch
        async with self._changing:
            found = {name: max(until, self._lost_until.get(name, 0)) for name in partitions}
            if found:
                await self._write({**self._lost_until, **found}, offload)

    def count_sole_replicas_complete(self, partitions: Iterable[TopicPartition]) -> None:
        """These logs may lack records, but no other replica could have them: their in-sync entries may be confirmed.

        Only while `complete_from` is None.
        """
        assert self.complete_from is None
        found = dict.fromkeys(partitions, _ALWAYS)
        if found:
            self._lost_until = {**self._lost_until, **found}
            self._write_nothing_kept()

    async def forget(self, partitions: Iterable[TopicPartition], offload: Offload = INLINE) -> None:
        """Logs are deleted: no topic has reports about them any more."""
        async with self._changing:
            forgotten = set(partitions) & self._lost_until.keys()
            if forgotten:
                kept = {name: epoch for name, epoch in self._lost_until.items() if name not in forgotten}
                await self._write(kept, offload)

    async def set_complete_from(self, broker_epoch: int, offload: Offload = INLINE) -> None:
        """This broker was registered: reports from now on are under this epoch, and the logs hold what they say."""
        async with self._changing:
            if self.complete_from is None:
                # First: a damaged file means that no log is complete, and is replaced only when that is recorded here.
                await offload(lambda: record_complete_from(self._disk, self._directory, broker_epoch))
            if self.complete_from is None or _NEVER in self._lost_until.values():
                ends = self._lost_until.items()
                kept = {name: broker_epoch if epoch == _NEVER else epoch for name, epoch in ends}
                await self._write(kept, offload)
            if self.complete_from is None:
                self.complete_from = broker_epoch

    def _write_nothing_kept(self) -> None:
        """In this order: a damaged file also means that no log is complete, until it is replaced."""
        record_none_complete(self._disk, self._directory)
        checkpoints.write_kept_from(self._disk, self._directory, self._lost_until)

    async def _write(self, lost_until: dict[TopicPartition, int], offload: Offload) -> None:
        await offload(lambda: checkpoints.write_kept_from(self._disk, self._directory, lost_until))
        self._lost_until = lost_until


def record_complete_from(disk: Disk, directory: str, broker_epoch: int) -> None:
    """All logs of a directory are complete from this epoch on: 0 when a broker's tree moves to another home."""
    found = checkpoints.read_meta_properties(disk, directory) or {}
    checkpoints.write_meta_properties(disk, directory, {**found, KEPT_FROM: str(broker_epoch)})


def record_none_complete(disk: Disk, directory: str) -> None:
    """No log of a directory is complete until its broker is registered again."""
    found = checkpoints.read_meta_properties(disk, directory) or {}
    if found.get(KEPT_FROM) != NOT_KEPT:
        checkpoints.write_meta_properties(disk, directory, {**found, KEPT_FROM: NOT_KEPT})


def has_complete_logs(disk: Disk, directory: str) -> bool:
    """Whether any log of a directory may be complete.  Writes nothing."""
    text = (checkpoints.read_meta_properties(disk, directory) or {}).get(KEPT_FROM)
    complete_from = _parsed(text, directory, has_logs=True)
    return complete_from is not None and checkpoints.read_kept_from(disk, directory) is not None


def are_all_complete(disk: Disk, directory: str) -> bool:
    """Whether no log of a directory is recorded to lack anything, under any broker epoch.  Writes nothing."""
    text = (checkpoints.read_meta_properties(disk, directory) or {}).get(KEPT_FROM)
    has_record = _parsed(text, directory, has_logs=True) is not None
    return has_record and checkpoints.read_kept_from(disk, directory) == {}


def _parsed(text: str | None, directory: str, *, has_logs: bool) -> int | None:
    if text is None:
        return 0 if has_logs else None
    if text == NOT_KEPT:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > _NEVER:
        raise StorageError(
            f"{directory}/{checkpoints.META_PROPERTIES_FILE} has {KEPT_FROM}={text}, which is no number",
            hint=f"restore the file from a backup, or write {KEPT_FROM}={NOT_KEPT}: then other replicas must lead",
        )
    return int(text)
