"""The ledger of offsets that a reader could not read, and why: a topic, `ottla-ledger`.

from ottla.lost_offsets import read_ledger

for entry in read_ledger("localhost:9092"):
    print(entry.lost.topic, entry.lost.partition, entry.lost.first_offset, entry.lost.end_offset, entry.lost.reason)
"""

from ottla.lost_offsets.entry import UNKNOWN_END, LedgerEntry, LostRange
from ottla.lost_offsets.topic import read_ledger
from ottla.model.own_names import LEDGER_TOPIC

__all__ = ["LEDGER_TOPIC", "UNKNOWN_END", "LedgerEntry", "LostRange", "read_ledger"]
