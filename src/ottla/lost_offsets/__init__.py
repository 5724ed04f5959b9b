"""Offsets that a reader could not read, and why: entries of the topic `ottla-ledger`.

from ottla.lost_offsets import read_lost_offsets

for entry in read_lost_offsets("localhost:9092"):
    print(entry.lost.topic, entry.lost.partition, entry.lost.first_offset, entry.lost.end_offset, entry.lost.reason)
"""

from ottla.lost_offsets.entry import UNKNOWN_END, LostOffsets, LostRange
from ottla.lost_offsets.topic import read_lost_offsets
from ottla.model.own_names import LEDGER_TOPIC

# The names of earlier releases.
LedgerEntry = LostOffsets
read_ledger = read_lost_offsets

__all__ = ["LEDGER_TOPIC", "UNKNOWN_END", "LostOffsets", "LostRange", "read_lost_offsets"]
