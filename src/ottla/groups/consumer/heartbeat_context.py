"""The inputs of a heartbeat's decision besides the group itself."""

from __future__ import annotations

from typing import NamedTuple

from ottla.groups.settings import GroupSettings
from ottla.groups.subscription_pattern import SubscriptionPatterns
from ottla.groups.topics_image import TopicsImage


class HeartbeatContext(NamedTuple):
    """`topics_are_seen`: the group has compared `topics` before, and nothing had changed for it."""

    settings: GroupSettings
    topics: TopicsImage
    patterns: SubscriptionPatterns
    wall_ms: int
    topics_are_seen: bool = False
