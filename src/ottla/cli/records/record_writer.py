"""Records of fetched batches, written to a stream: those of a filter, in a form, up to a count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from ottla.cli.output import say

if TYPE_CHECKING:
    from ottla.client.fetching.fetch_requests import FetchedPartition
    from ottla.model.identifiers import TopicPartition
    from ottla.records.header import BatchHeader
    from ottla.records.record import Record

# The text of a record; the flag: its timestamp is that of its append.
RecordForm: TypeAlias = "Callable[[TopicPartition, Record, bool], bytes]"

DAMAGED: Final = (
    "`ottla log verify --deep DIR` finds damage in the broker's data directory, `ottla log repair DIR` makes the rest "
    "readable"
)
_AFTER_DAMAGE: Final = f"start after the damage with --offset; {DAMAGED}"
_UNREADABLE: Final = f"--skip-unreadable leaves such batches out and says where; {DAMAGED}"


class RecordWriter:
    """`limit`: so many records are written; None for any count."""

    def __init__(
        self,
        out: BinaryIO,
        form: RecordForm,
        accepts: Callable[[Record], bool] | None = None,
        *,
        limit: int | None = None,
        skips_unreadable: bool = False,
    ) -> None:
        self.out: Final = out
        self._form = form
        self._accepts = accepts
        self._left = limit
        self._skips_unreadable = skips_unreadable
        # Where the batches that were left out say that they end: damage may be in that, too.
        self._claims: dict[TopicPartition, int] = {}

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def show(self, partition: TopicPartition, record: Record, *, is_append_time: bool = False) -> None:
        """Write it, unless the filter leaves it out."""
        if self._accepts is not None and not self._accepts(record):
            return
        self.out.write(self._form(partition, record, is_append_time))
        if self._left is not None:
            self._left -= 1

    def write(self, fetched: FetchedPartition, end: int | None) -> None:
        """The records from the requested offset up to `end`."""
        from ottla.client.fetching.fetch_requests import committed_batches
        from ottla.records.header import read_header

        for batch in committed_batches(fetched):
            header = read_header(batch)
            self._check_claim(fetched.partition, header)
            if header.is_control:
                continue
            for record in self._records(fetched, batch, header):
                if record.offset < fetched.fetch_offset or (end is not None and record.offset >= end):
                    continue
                if self.is_full:
                    return
                self.show(fetched.partition, record, is_append_time=header.is_log_append_time)

    def _records(self, fetched: FetchedPartition, batch: memoryview, header: BatchHeader) -> list[Record]:
        """Those of a batch; none of one that is left out."""
        from ottla.model.errors import WireError
        from ottla.records.errors import CorruptBatch
        from ottla.records.record import decode_batch

        try:
            return decode_batch(batch)
        except WireError as error:  # damaged, or more than may be decompressed
            place = f"{fetched.partition}, {_offsets(header)}"
            if not self._skips_unreadable:
                raise CorruptBatch(f"{place}: the batch cannot be read: {error}", hint=_UNREADABLE) from error
            if header.next_offset > fetched.high_watermark:
                log_end = f"the log ends at offset {fetched.high_watermark}"
                raise CorruptBatch(f"{place}: the batch cannot be read, and {log_end}", hint=_AFTER_DAMAGE) from error
            say(f"note: {place}: the batch cannot be read and is left out: {error}", err=True)
            self._claims[fetched.partition] = header.next_offset
            return []

    def _check_claim(self, partition: TopicPartition, header: BatchHeader) -> None:
        from ottla.records.errors import CorruptBatch

        claim, found = self._claims.pop(partition, 0), header.base_offset
        if found < claim:
            wrong = f"the batch that was left out does not end at offset {claim - 1}: {found} is in the next one"
            raise CorruptBatch(f"{partition}: {wrong}", hint=_AFTER_DAMAGE)


def _offsets(header: BatchHeader) -> str:
    first, last = header.base_offset, header.next_offset - 1
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
