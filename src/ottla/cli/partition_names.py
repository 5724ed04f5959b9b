"""Partitions, as arguments and flags name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster


def partitions_named(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """`TOPIC` means all of its partitions, `TOPIC:0,2` these.  Raises UnknownTopic, UsageError."""
    found: list[TopicPartition] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            found += [TopicPartition(topic, partition) for partition in cluster.partitions(topic)]
            continue
        for number in numbers.split(","):
            if not (number.isascii() and number.isdecimal() and len(number) <= 9):
                raise click.UsageError(f"Name TOPIC or TOPIC:0,1, not {text!r}.")
            partition = TopicPartition(topic, int(number))
            cluster.leader(partition)
            found.append(partition)
    return list(dict.fromkeys(found))
