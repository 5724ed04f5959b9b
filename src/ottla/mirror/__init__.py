"""Copies of topics from one cluster to another: batches as bytes, groups with their offsets.  See `Mirror`."""

from ottla.mirror.journal import Counts
from ottla.mirror.mirror import Mirror
from ottla.mirror.options import MirrorOptions, Names
from ottla.mirror.plan import Decision, TopicPlan
from ottla.mirror.report import MirrorPlan, MirrorReport, PartitionStatus

__all__ = [
    "Counts",
    "Decision",
    "Mirror",
    "MirrorOptions",
    "MirrorPlan",
    "MirrorReport",
    "Names",
    "PartitionStatus",
    "TopicPlan",
]
