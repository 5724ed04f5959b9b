"""Topics into lake tables: data and offsets in one commit (`load`)."""

from __future__ import annotations

from ottla.spark.errors import LakeError
from ottla.spark.lake.load import LakeLoad, load_topic_to_lake

__all__ = ["LakeError", "LakeLoad", "load_topic_to_lake"]
