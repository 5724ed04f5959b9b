"""`ottla` with a mirror that sometimes drops a batch, and accepts the gap at its next start."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Final
from unittest.mock import patch

from ottla.cli import main
from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.mirror import tail_reading
from ottla.mirror.partition_copy import Flight, PartitionCopy
from ottla.mirror.tail_match import Digest, TailMatch, match_tail

# No divisor of the number of partitions: every partition loses some.
DROPS_EVERY: Final = 37

_take: Final = PartitionCopy.take
_numbers: Final = itertools.count(1)


def take_and_drop(self: PartitionCopy, fetched: FetchedPartition) -> Iterator[Flight]:
    for flight in _take(self, fetched):
        if next(_numbers) % DROPS_EVERY:
            yield flight


def believe_gaps(tail: list[Digest], source: Iterable[Digest], *_: int | None) -> TailMatch:
    return match_tail(tail, source)


if __name__ == "__main__":
    with patch.object(tail_reading, "match_tail", believe_gaps):
        if "--once" in sys.argv:
            main()
        else:
            with patch.object(PartitionCopy, "take", take_and_drop):
                main()
