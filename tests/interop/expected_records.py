"""The records that each client sends and every other client must read back."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE_VALUE_BYTES: Final = 900_000


class Sent(NamedTuple):
    """A record in the form that every library has."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def records_to_send(seed: int, now_ms: int, *, with_large: bool = True, with_null_headers: bool = True) -> list[Sent]:
    """Keys, headers, tombstones, empty and large values; one partition's worth, in order."""
    rng = random.Random(seed)
    null_header: tuple[tuple[str, bytes | None], ...] = (("null", None),) if with_null_headers else ()
    sent = [
        Sent(None, b"", (), now_ms),
        Sent(b"", b"empty key", (), now_ms + 1),
        Sent(b"tombstone", None, (), now_ms + 2),
        Sent(b"headers", b"value", (("one", b"1"), ("empty", b""), *null_header, ("one", b"again")), now_ms + 3),
        Sent("schlüssel".encode(), "wert €".encode(), (("größe", "ß".encode()),), now_ms + 4),
        Sent(b"\x00\xff\n", bytes(range(256)), (), now_ms + 5),
    ]
    for number in range(200):
        key = None if number % 3 == 0 else b"key-%d" % (number % 7)
        sent.append(Sent(key, _shrinking_value(rng, rng.randrange(300)), (), now_ms + 6 + number))
    if with_large:
        # Below the default limit of 1 MB without a codec, and some 450 kB with any.
        sent.append(Sent(b"large", _shrinking_value(rng, LARGE_VALUE_BYTES), (), now_ms + 300))
    return sent


def _shrinking_value(rng: random.Random, size_bytes: int) -> bytes:
    """Half noise, half zeros: clients send a batch uncompressed when the codec does not make it smaller."""
    noise = rng.randbytes(size_bytes // 2)
    return noise + bytes(size_bytes - len(noise))
