"""The marker that ends a transaction in a partition: a control batch of one record.

    key    int16 version 0 | int16 type: 0 abort, 1 commit
    value  int16 version 0 | int32 the coordinator's epoch

The batch has the transactional and the control bit and no sequence.  Its producer epoch is that of the marker, which
is above the data's when the end advances the epoch (KIP-890).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.model.errors import WireError
from ottla.records.builder import NO_SEQUENCE, BatchBuilder
from ottla.records.errors import CorruptBatch
from ottla.records.header import read_header
from ottla.records.record import decode_batch

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class EndMarker(NamedTuple):
    commits: bool
    coordinator_epoch: int


def build_end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, now_ms: int) -> bytearray:
    builder = BatchBuilder()
    key = _KEY.pack(_VERSION, _COMMIT if marker.commits else _ABORT)
    builder.append(now_ms, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        is_transactional=True,
        is_control=True,
    )


# What compaction leaves of a marker whose transaction it has removed, for the epoch of its producer.
EMPTIED: Final = EndMarker(commits=True, coordinator_epoch=0)


def stored_end_marker(batch: memoryview) -> EndMarker | None:
    """The marker of a control batch in a log; None for a control record of another kind, and for what is none.

    One that compaction has emptied is `EMPTIED`.
    """
    if not read_header(batch).records_count:
        return EMPTIED
    try:
        return read_end_marker(batch)
    except WireError:
        return None


def read_end_marker(batch: memoryview) -> EndMarker | None:
    """The marker of a control batch; None for a control record of another kind.

    A later version of key or value starts with the same fields.  Raises `CorruptBatch`.
    """
    record = next(iter(decode_batch(batch)), None)
    key, value = (None, None) if record is None else (record.key, record.value)
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("a control batch has no key that names its kind")
    kind = _KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatch("the marker of a transaction has no coordinator epoch")
    return EndMarker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
