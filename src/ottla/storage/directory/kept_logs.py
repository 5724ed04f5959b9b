"""From which broker epoch on a directory's logs hold all that this broker reported of them (broker epoch: the change id
of its registration in the tree).

A replica is in sync under the epoch of one registration.  After a restart it may confirm that entry only if its log
still has what it reported then.  It has not when the directory is new, when flush policy `os` met an unclean stop and
the machine restarted, or when the log was set aside and made anew.  Such a state is recorded, durably, before anything
is forgotten that tells it.  It ends with the next registration (`keep_from`), or with the present one where the log
reported nothing under it yet: as long as it lasted a restart would give up what the log has fetched anew.

`ottla.kept.from` in meta.properties is for all logs of the directory; `kept-from` has the logs that lost something
later, in the format of Kafka's checkpoints.  Epoch 0 there is of a log that is kept although the directory's are not:
the only replica of its partition, in a copy that an operator accepted (`ottla cluster rejoin`).
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


class KeptLogs:
    """Every change is on the device when its call returns; `offload` writes it.  Raises `OSError`: call it again."""

    def __init__(self, disk: Disk, directory: str, *, has_logs: bool) -> None:
        """`has_logs`: a directory of a version that did not record this has kept what it has."""
        self._disk = disk
        self._directory = directory
        text = (checkpoints.read_meta_properties(disk, directory) or {}).get(KEPT_FROM)
        self.kept_from = _parsed(text, directory, has_logs=has_logs)
        lost = checkpoints.read_kept_from(disk, directory)
        if lost is None:
            # The file is damaged, so it is not known which logs lost something.
            self.kept_from = None
        self._lost_until: dict[TopicPartition, int] = lost or {}
        # Of one change at a time: the next one follows from what was written.
        self._changing = Mutex()
        if self.kept_from is None and _ALWAYS in self._lost_until.values():
            # Of an earlier time; `keep_though_lost` says it of each that it still holds for.
            self._lost_until = {name: epoch for name, epoch in self._lost_until.items() if epoch != _ALWAYS}
            self._write_nothing_kept()

    def is_kept(self, topic_partition: TopicPartition, broker_epoch: int) -> bool:
        """Whether the log has all that was reported of it under that epoch."""
        lost_until = self._lost_until.get(topic_partition)
        if lost_until == _ALWAYS:
            return True
        return self.kept_from is not None and broker_epoch >= max(self.kept_from, lost_until or 0)

    async def lost(
        self, partitions: Iterable[TopicPartition], broker_epoch: int | None = None, offload: Offload = INLINE
    ) -> None:
        """These logs may lack what was reported before: under earlier epochs than `broker_epoch`, the present
        registration's, if nothing was reported of them under this one yet, else up to the next one.
        """
        until = _NEVER if broker_epoch is None else broker_epoch
        async with self._changing:
            found = {name: max(until, self._lost_until.get(name, 0)) for name in partitions}
            if found:
                await self._write({**self._lost_until, **found}, offload)

    def keep_though_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These logs may lack something, and have no other replica that could have it: they keep their places.

        Only while `kept_from` is None.
        """
        assert self.kept_from is None
        found = dict.fromkeys(partitions, _ALWAYS)
        if found:
            self._lost_until = {**self._lost_until, **found}
            self._write_nothing_kept()

    async def forget(self, partitions: Iterable[TopicPartition], offload: Offload = INLINE) -> None:
        """Logs are deleted: what was reported of them is of no topic any more."""
        async with self._changing:
            forgotten = set(partitions) & self._lost_until.keys()
            if forgotten:
                kept = {name: epoch for name, epoch in self._lost_until.items() if name not in forgotten}
                await self._write(kept, offload)

    async def keep_from(self, broker_epoch: int, offload: Offload = INLINE) -> None:
        """A registration: whatever is reported from now on is under this epoch, and kept."""
        async with self._changing:
            if self.kept_from is None:
                # First: a damaged file means that nothing is kept, and is replaced only when that is recorded here.
                await offload(lambda: set_kept_from(self._disk, self._directory, broker_epoch))
            if self.kept_from is None or _NEVER in self._lost_until.values():
                ends = self._lost_until.items()
                kept = {name: broker_epoch if epoch == _NEVER else epoch for name, epoch in ends}
                await self._write(kept, offload)
            if self.kept_from is None:
                self.kept_from = broker_epoch

    def _write_nothing_kept(self) -> None:
        """First that nothing is kept: the file may be damaged, and then says it as long as it is not replaced."""
        set_nothing_kept(self._disk, self._directory)
        checkpoints.write_kept_from(self._disk, self._directory, self._lost_until)

    async def _write(self, lost_until: dict[TopicPartition, int], offload: Offload) -> None:
        await offload(lambda: checkpoints.write_kept_from(self._disk, self._directory, lost_until))
        self._lost_until = lost_until


def set_kept_from(disk: Disk, directory: str, broker_epoch: int) -> None:
    """All logs of a directory are kept from this epoch on: 0 when a broker's tree moves to another home."""
    found = checkpoints.read_meta_properties(disk, directory) or {}
    checkpoints.write_meta_properties(disk, directory, {**found, KEPT_FROM: str(broker_epoch)})


def set_nothing_kept(disk: Disk, directory: str) -> None:
    """No log of a directory holds all that was reported of it, until its broker is registered again."""
    found = checkpoints.read_meta_properties(disk, directory) or {}
    if found.get(KEPT_FROM) != NOT_KEPT:
        checkpoints.write_meta_properties(disk, directory, {**found, KEPT_FROM: NOT_KEPT})


def keeps_logs(disk: Disk, directory: str) -> bool:
    """Whether any log of a directory may count for what was reported of it.  Writes nothing."""
    text = (checkpoints.read_meta_properties(disk, directory) or {}).get(KEPT_FROM)
    kept_from = _parsed(text, directory, has_logs=True)
    return kept_from is not None and checkpoints.read_kept_from(disk, directory) is not None


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
