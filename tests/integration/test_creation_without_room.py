"""A broker that runs out of descriptors while it makes a topic: the topic is served once there are some."""

from __future__ import annotations

PARTITIONS = 60
