"""Copies of topics from one cluster to another: batches as bytes, groups with their offsets.  See `Mirror`."""

from __future__ import annotations

import warnings

from ottla.mirror.journal import Counts
from ottla.mirror.mirror import Mirror
from ottla.mirror.options import MirrorOptions, Names
from ottla.mirror.plan import TopicAction, TopicPlan
from ottla.mirror.report import MirrorPlan, MirrorReport, PartitionStatus

__all__ = [
    "Counts",
    "Mirror",
    "MirrorOptions",
    "MirrorPlan",
    "MirrorReport",
    "Names",
    "PartitionStatus",
    "TopicAction",
    "TopicPlan",
]


def __getattr__(name: str) -> object:
    if name != "Decision":
        raise AttributeError(f"module 'ottla.mirror' has no attribute {name!r}")
    warnings.warn(
        "ottla.mirror.Decision is named TopicAction; the next release is without the old name",
        DeprecationWarning,
        stacklevel=2,
    )
    return TopicAction
