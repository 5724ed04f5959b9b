"""Where a group's nodes are: the paths of the 2011 paper and early Kafka."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ottla.coordination.layout import CONSUMERS
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition

GROUP_NAME_LENGTH_MAX: Final = 249
_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z", re.ASCII)


class BadGroupName(ConfigError):
    """The name of a group cannot be a part of a path."""

    hint = f"in ZooKeeper a group's name has 1 to {GROUP_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-'"


class GroupPaths(NamedTuple):
    """The paths of one group.

    >>> GroupPaths.of("jobs").offset(TopicPartition("page-views", 3))
    '/consumers/jobs/offsets/page-views/3'
    """

    group: str

    @classmethod
    def of(cls, group: str) -> GroupPaths:
        """Raises `BadGroupName`: early Kafka took the same names."""
        if _GROUP_NAME.match(group) is None or group in {".", ".."}:
            raise BadGroupName(f"{group[:GROUP_NAME_LENGTH_MAX]!r} is not the name of a group")
        return cls(group)

    @property
    def root(self) -> str:
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        return f"{self.root}/offsets"

    def consumer(self, consumer_id: str) -> str:
        return f"{self.ids}/{consumer_id}"

    def owners_of(self, topic: str) -> str:
        return f"{self.owners}/{topic}"

    def offsets_of(self, topic: str) -> str:
        return f"{self.offsets}/{topic}"

    def owner(self, partition: TopicPartition) -> str:
        return f"{self.owners}/{partition.topic}/{partition.partition}"

    def offset(self, partition: TopicPartition) -> str:
        return f"{self.offsets}/{partition.topic}/{partition.partition}"
