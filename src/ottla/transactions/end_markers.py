"""The markers that a coordinator has decided to write."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.identifiers import TopicPartition


class EndMarkers(NamedTuple):
    """The markers that end one transaction.

    `advances_epoch`: `producer_epoch` is above that of the transaction's records.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    advances_epoch: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
