"""Errors of the embedded tree's file."""

from __future__ import annotations

from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError

_RESTORE: Final = (
    "the partitions' own directories are untouched by this: `ottla restore` a backup into a new directory, or see what "
    "`ottla log repair DIR` would rebuild of the tree from the logs"
)
NOTHING_IN_IT: Final = "holds nothing, and its directory is not new"


class TreeStoreError(OttlaError):
    """The embedded tree's file cannot be used; `path` is the file."""

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"tree file {path}: {problem}", hint=hint)
        self.path = path


class TreeStoreLost(TreeStoreError):
    """There is no file, or an empty one, where there must be one: it was not recreated."""

    hint = _RESTORE


class TreeStoreForeign(TreeStoreError):
    """The file is not a tree of Ottla."""

    hint = _RESTORE


class TreeStoreOtherVersion(TreeStoreError):
    """The file is of a version that this program does not know: nothing of it is lost."""

    hint = "use the version of ottla that wrote it"


class TreeStoreDamaged(TreeStoreError):
    """The file is damaged: it is refused, never repaired by guessing."""

    hint = _RESTORE


class TreeStoreLocked(TreeStoreError):
    hint = "another broker uses this data directory: stop it, or give this one its own"


class TreeStoreFull(TreeStoreError):
    """The disk has no room: the change was not made, nothing else is affected, and it can be tried again."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "free some space on the disk, then try again"


class TreeStoreFailed(TreeStoreError):
    """A write failed and its outcome is unknown: this backend accepts no change until the process is restarted."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "check the disk's health, then restart the broker"
