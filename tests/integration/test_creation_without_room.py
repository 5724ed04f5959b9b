"""A broker runs out of descriptors while it creates a topic: the topic is served once descriptors are free."""

from __future__ import annotations

PARTITIONS = 60
