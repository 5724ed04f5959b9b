"""Topics that live for one measurement, and a disk that is quiet when it begins."""

from __future__ import annotations

import os
import time
from typing import Final

from bench.peers.peer import Peer
from bench.wire import Wire

# Apache Kafka looks for files to delete only from 30 s after its start.
DELETION_TIMEOUT_S: Final = 45


def create_topic(peer: Peer, topic: str, partitions: int) -> None:
    with Wire(peer.port) as wire:
        wire.create_topic(topic, partitions)


def count_records(peer: Peer, topic: str, partitions: int) -> int:
    """How many the broker says are in the topic: the sum of its log end offsets."""
    with Wire(peer.port) as wire:
        ends = wire.end_offsets(topic, partitions)
    return sum(end for end in ends.values() if end is not None)


def delete_topic(peer: Peer, topic: str) -> None:
    """Delete it and wait until its directories are gone, so that neither disk nor a later line pays for it."""
    with Wire(peer.port) as wire:
        wire.delete_topic(topic)
    deadline = time.monotonic() + DELETION_TIMEOUT_S
    while any(peer.data_dir.rglob(f"{topic}*")) and time.monotonic() < deadline:
        time.sleep(0.1)


def settle_disk() -> None:
    """Write out what earlier lines left dirty: no flush may pay for the pages of another line."""
    os.sync()
