"""Errors of the embedded tree's file."""

from __future__ import annotations

from ottla.model.errors import OttlaError


class TreeStoreError(OttlaError):
    """The embedded tree's file cannot be used; `path` is the file."""

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"tree file {path}: {problem}", hint=hint)
        self.path = path


class TreeStoreForeign(TreeStoreError):
    """The file is not ours, or of an unknown version."""

    hint = "point the data directory at the one that this broker wrote, or move the file away"


class TreeStoreDamaged(TreeStoreError):
    """The file is ours but damaged: it is refused, never repaired by guessing."""

    hint = "restore the file from a backup; the partitions' own directories are untouched by this"


class TreeStoreLocked(TreeStoreError):
    hint = "another broker uses this data directory: stop it, or give this one its own"


class TreeStoreFull(TreeStoreError):
    """The disk has no room: the change was not made, nothing else is affected, and it can be tried again."""

    hint = "free some space on the disk, then try again"


class TreeStoreFailed(TreeStoreError):
    """A write failed and its outcome is unknown: this home accepts no more changes until the process is restarted."""

    hint = "check the disk's health, then restart the broker"
