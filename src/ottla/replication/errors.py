"""Why a replica cannot take the role that the tree gives it."""

from __future__ import annotations

from ottla.model.errors import OttlaError


class EpochBehindLog(OttlaError):
    """The tree's leader epoch is below one that the log has: the tree is older than the log."""

    hint = "the tree was restored from an older copy, or the log is another cluster's"
