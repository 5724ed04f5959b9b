"""What is sent: lines of text as an activity log has them, the same for every client, and the checksum of many."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Final

# Far more than a batch holds, so that a codec finds no repeats that a real log would not have.
VALUES_COUNT: Final = 4096
_SEED: Final = 1
_PAGES: Final = ("feed", "jobs", "in", "company", "search", "groups", "messaging", "school", "learning", "events")
_AGENTS: Final = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh)", "LinkedInApp/9.1 (iPhone)", "curl/8.5")


@lru_cache(maxsize=4)
def values_of(value_bytes: int) -> tuple[bytes, ...]:
    """`VALUES_COUNT` values of that length; message number i carries the one at i modulo their count."""
    source = random.Random(_SEED)
    return tuple(_value(source, value_bytes) for _ in range(VALUES_COUNT))


def _value(source: random.Random, value_bytes: int) -> bytes:
    """Events until it is long enough, cut at its length."""
    text = ""
    while len(text) < value_bytes:
        text += (
            f'{{"at":{1_700_000_000_000 + source.randrange(10**8)},"member":{source.randrange(10**8)},'
            f'"page":"/{source.choice(_PAGES)}/{source.randrange(10**6):x}","ms":{source.randrange(3000)},'
            f'"agent":"{source.choice(_AGENTS)}"}}\n'
        )
    return text[:value_bytes].encode()


def checksum_of(value_bytes: int, messages: int) -> int:
    """Of messages 0 to `messages` - 1: the sum of their values' last bytes, so that each value must be looked at."""
    last_bytes = [value[-1] for value in values_of(value_bytes)]
    cycles, rest = divmod(messages, VALUES_COUNT)
    return cycles * sum(last_bytes) + sum(last_bytes[:rest])
