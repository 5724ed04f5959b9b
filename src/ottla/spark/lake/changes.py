"""Changes of rows that have keys: which change of each key counts.  Pure; on whole Arrow columns.

The changes of a key are in one partition of the log, and come in its order.  A change without a sequence takes effect
there.  One with a sequence takes effect unless the key has a greater one by then: an event that is late, or repeated,
changes nothing.  So of any number of changes two for each key are enough, for any table: the last without a
sequence, and the last of those with the greatest sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.arrow.key_hashes import hash_column
from ottla.spark.errors import ColumnsRefused, FunctionRefused, LakeError, RecordsRefused
from ottla.spark.lake.rows import EVENT_TIME, PLACE_COLUMNS, TOPIC_ID

Indices: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

DELETED: Final = "deleted"
# Of `decode`, and never in a table: records that change nothing.
NO_CHANGE: Final = "ottla.no_change"
CURRENT: Final = "current"
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
BUCKET: Final = "bucket"
BUCKETS_DEFAULT: Final = 16
BUCKETS_MAX: Final = 10_000
NONE: Final = -1
_PLACES: Final = (*PLACE_COLUMNS, TOPIC_ID, "timestamp", EVENT_TIME)
_KEY_TYPES: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)
_SEQUENCE_TYPES: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class UpsertRule:
    """How changes become rows of a table: a row for each key, in the bucket of the key's hash.

    `sequence_by`: the column that orders the changes of a key; without it they are ordered by their log.  Then deleted
    keys leave no row.  With it they leave one in which `deleted` is true and all but the keys, the sequence and the
    place in the log is null, so that a late event does not bring the row back.

    `keeps_history`: a row for each version of each key (`versions.py`), those of today in the partitions `current`.
    """

    keys: tuple[str, ...]
    sequence_by: str | None = None
    buckets: int = BUCKETS_DEFAULT
    keeps_history: bool = False

    def __post_init__(self) -> None:
        if not self.keys:
            raise LakeError("an upsert needs keys", hint='give the columns of the key, as keys=("key",)')
        if self.keeps_history and self.sequence_by is None:
            raise LakeError(
                "a history needs sequence_by, from which each version is valid",
                hint='give a column that all changes have, as "timestamp" or "event_time"',
            )
        if not 0 < self.buckets <= BUCKETS_MAX:
            raise LakeError(f"buckets is {self.buckets}", hint=f"give 1 to {BUCKETS_MAX}")

    @property
    def commits_id(self) -> str:
        """The application id under which a table counts its commits by this rule."""
        kind = "history" if self.keeps_history else "upsert"
        return f"ottla/{kind}/{self.buckets}/{','.join(self.keys)}/{self.sequence_by or ''}"

    @property
    def partition_by(self) -> tuple[str, ...]:
        return (BUCKET, CURRENT) if self.keeps_history else (BUCKET,)

    @property
    def lookup_columns(self) -> tuple[str, ...]:
        """Of a table's file: what decides which of its rows stay."""
        return self.keys if self.sequence_by is None else (*self.keys, self.sequence_by)

    def marked(self, rows: pa.Table, values: pa.Array) -> pa.Table:
        """Rows of records that are changes, with the column `deleted`.

        It is true where `decode` says it, and where the record has no value.
        """
        if NO_CHANGE in rows.schema.names:
            is_change = pc.invert(whole(rows.column(NO_CHANGE)))
            rows, values = without_marks(rows).filter(is_change), values.filter(is_change)
        is_tombstone = values.is_null()
        at = rows.schema.get_field_index(DELETED)
        if at < 0:
            return rows.append_column(DELETED, is_tombstone)
        given = rows.column(DELETED)
        if not pa.types.is_boolean(given.type):
            raise ColumnsRefused(f"decode gave the column {DELETED!r} as {given.type}", hint="give booleans")
        return rows.set_column(at, DELETED, pc.or_(pc.fill_null(given, False), is_tombstone))

    def blanked(self, rows: pa.Table) -> pa.Table:
        """A deleted row keeps its keys, its sequence and its place in the log."""
        is_deleted = rows.column(DELETED)
        if not pc.any(is_deleted).as_py():
            return rows
        kept = {*self.lookup_columns, *_PLACES, DELETED}
        columns = [
            rows.column(field.name)
            if field.name in kept
            else pc.if_else(is_deleted, pa.scalar(None, field.type), rows.column(field.name))
            for field in rows.schema
        ]
        return pa.table(columns, schema=rows.schema)

    def with_buckets(self, rows: pa.Table) -> pa.Table:
        hashes = hash_column(key_column(rows, self.keys))
        return rows.append_column(BUCKET, pa.array((hashes % self.buckets).astype(np.int32)))

    def check(self, rows: pa.Table) -> None:
        """Raises `RecordsRefused` for records without a key, in a history without a sequence, and as `check_schema`."""
        self.check_schema(rows.schema)
        for name in self.keys:
            if rows.column(name).null_count:
                hint = "let decode take the keys from the record's key, which a tombstone has too"
                raise _without(rows, name, "which is of its key", hint)
        if self.keeps_history:
            assert self.sequence_by is not None
            if rows.column(self.sequence_by).null_count:
                raise _without(rows, self.sequence_by, "a history needs it", 'take "timestamp" or "event_time"')

    def check_schema(self, rows: pa.Schema) -> None:
        """Raises `ColumnsRefused` for columns that cannot be keys or order changes, or that the table has besides."""
        for name in (BUCKET, CURRENT, VALID_FROM, VALID_TO) if self.keeps_history else (BUCKET,):
            if name in rows.names:
                raise FunctionRefused(
                    f"decode gives a column {name!r}, which the table has for its rows", hint="give it another name"
                )
        for name in self.keys:
            if name not in rows.names:
                raise _missing(name, "is of the key", [each.name for each in rows if _is_key(each.type)])
            check_key_type(name, rows.field(name).type)
        if self.sequence_by is None:
            return
        ordering = [each.name for each in rows if _orders(each.type)]
        if self.sequence_by not in rows.names:
            raise _missing(self.sequence_by, "orders the changes", ordering)
        kind = rows.field(self.sequence_by).type
        if not _orders(kind):
            raise ColumnsRefused(
                f"the column {self.sequence_by!r} is {kind}, which does not order changes",
                hint=f"use whole numbers, times, dates, texts or bytes: {', '.join(ordering)}",
            )


def without_marks(rows: pa.Table) -> pa.Table:
    """Rows of records, of a `decode` that marks those that change nothing."""
    return rows.drop_columns([NO_CHANGE]) if NO_CHANGE in rows.schema.names else rows


def _without(rows: pa.Table, name: str, reason: str, hint: str) -> LakeError:
    row = pc.index(pc.is_null(rows.column(name)), True).as_py()
    place = [rows.column(each)[row].as_py() for each in PLACE_COLUMNS]
    where = f"offset {place[2]} of {place[0]} partition {place[1]}"
    return RecordsRefused(f"the record at {where} has no {name!r}, {reason}", hint=hint)


def indices_of(keys: pa.Array, among: pa.Array) -> Indices:
    """For each of the keys its index among others, `NONE` where it is not there."""
    found: Indices = pc.fill_null(pc.index_in(keys, among), NONE).to_numpy().astype(np.int64)
    return found


def _missing(name: str, purpose: str, suitable: Sequence[str]) -> ColumnsRefused:
    return ColumnsRefused(
        f"the rows have no column {name!r}, which {purpose}",
        hint=f"those with a suitable type are: {', '.join(suitable)}; "
        "decode must give a column with its type also where all of its values are null",
    )


def _is_key(kind: pa.DataType) -> bool:
    return any(suits(_plain(kind)) for suits in _KEY_TYPES)


def _orders(kind: pa.DataType) -> bool:
    return any(suits(_plain(kind)) for suits in _SEQUENCE_TYPES)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Of the values that a file has."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def check_key_type(name: str, kind: pa.DataType) -> None:
    if not _is_key(kind):
        raise ColumnsRefused(
            f"the column {name!r} is {kind}, which is no type of a key",
            hint="use texts, bytes, whole numbers, booleans, dates or times",
        )


def key_column(rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    """The keys as bytes, equal only where all columns are equal; null where one of them is null."""
    parts = [_octets(whole(rows.column(name))) for name in keys]
    if len(parts) == 1:
        return parts[0]
    # With its length before it no part runs into the next.
    lengths = [pc.binary_length(part).cast(pa.string()).cast(pa.binary()) for part in parts]
    pairs = [each for pair in zip(lengths, parts, strict=True) for each in pair]
    return pc.binary_join_element_wise(*pairs, b":")


def _octets(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_timestamp(column.type):
        # In one unit: a file that another writer has rewritten may have nanoseconds (INT96).
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.string()).cast(pa.binary())


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return (
            column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [column.combine_chunks()])
        )
    return column


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Changes by key.  `sequenced` and `unsequenced`: of each of the distinct `keys`, the row that may count or `NONE`.

    `places`: for each row its place in the order of the log.
    """

    rows: pa.Table
    keys: pa.Array
    sequenced: Indices
    unsequenced: Indices
    places: Indices
    sequence_by: str | None

    @staticmethod
    def of(rows: pa.Table, rule: UpsertRule) -> KeyChanges:
        """Rows in any order, at least one; each has a key."""
        coded = key_column(rows, rule.keys).dictionary_encode()
        count = len(coded.dictionary)
        if count == rows.num_rows:
            return KeyChanges._of_distinct(rows, coded.dictionary, rule)
        codes = coded.indices.to_numpy().astype(np.int64)
        order = log_order(rows)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        if rule.sequence_by is None:
            none = np.full(count, NONE, np.int64)
            return KeyChanges(rows, coded.dictionary, none, _last_of_each(codes, order, count), places, None)
        ranks = ranks_of(whole(rows.column(rule.sequence_by)))
        by_sequence = np.lexsort((places, ranks))
        sequenced = _last_of_each(codes, by_sequence[ranks[by_sequence] > 0], count)
        unsequenced = _last_of_each(codes, order[ranks[order] == 0], count)
        return KeyChanges(rows, coded.dictionary, sequenced, unsequenced, places, rule.sequence_by)

    @staticmethod
    def _of_distinct(rows: pa.Table, keys: pa.Array, rule: UpsertRule) -> KeyChanges:
        """Each row is of another key: there is nothing to order."""
        each = np.arange(len(keys))
        if rule.sequence_by is None:
            return KeyChanges(rows, keys, np.full(len(keys), NONE, np.int64), each, each, None)
        has_sequence = whole(rows.column(rule.sequence_by)).is_valid().to_numpy(zero_copy_only=False)
        sequenced, unsequenced = np.where(has_sequence, each, NONE), np.where(has_sequence, NONE, each)
        return KeyChanges(rows, keys, sequenced, unsequenced, each, rule.sequence_by)

    @property
    def are_of_distinct_keys(self) -> bool:
        return bool(len(self.keys) == self.rows.num_rows)

    def needed(self) -> pa.Table:
        """The rows that may count, for any table: at most two for each key."""
        found = np.concatenate([self.sequenced[self.sequenced != NONE], self.unsequenced[self.unsequenced != NONE]])
        return self.rows if len(found) == self.rows.num_rows else self.rows.take(pa.array(np.sort(found)))

    def decide(self, stored: pa.Array | None) -> Decision:
        """By the sequence that the table has for each of `keys` (null: none)."""
        if self.sequence_by is None:
            return Decision(np.ones(len(self.keys), np.bool_), self.rows.take(pa.array(self.unsequenced)))
        count = len(self.keys)
        column = whole(self.rows.column(self.sequence_by))
        mine = column.take(pa.array(self.sequenced, mask=self.sequenced == NONE))
        both = pa.concat_arrays([mine, pa.nulls(count, column.type) if stored is None else stored.cast(column.type)])
        ranks = ranks_of(both)
        my_ranks, stored_ranks = ranks[:count], ranks[count:]
        is_due = (self.sequenced != NONE) & (my_ranks >= stored_ranks)
        # Of rows that are not there the first one is looked at, and not used.
        comes_after = self.places[np.maximum(self.unsequenced, 0)] > self.places[np.maximum(self.sequenced, 0)]
        is_plain = (self.unsequenced != NONE) & (~is_due | comes_after)
        is_changed = is_plain | is_due
        rows = self.rows.take(pa.array(np.where(is_plain, self.unsequenced, self.sequenced)[is_changed]))
        each = np.arange(count)
        sequences = both.take(pa.array(np.where(my_ranks >= stored_ranks, each, count + each)[is_changed]))
        at = rows.schema.get_field_index(self.sequence_by)
        return Decision(is_changed, rows.set_column(at, self.sequence_by, sequences))


@dataclass(frozen=True, slots=True)
class Decision:
    """What changes of a table.  `is_changed`: of each key, whether the table's row of it goes.

    `rows`: the new ones, one for each key that changes, among them those that are deleted.  `past`: rows of versions
    that came and went.  `ends`: of each key where the version that the table has ends; null where it leaves no version.
    """

    is_changed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    rows: pa.Table
    past: pa.Table | None = None
    ends: pa.Array | None = None


def _last_of_each(codes: Indices, order: Indices, count: int) -> Indices:
    last = np.full(count, NONE, np.int64)
    # Of several values for one index the last stays.
    last[codes[order]] = order
    return last


def ranks_of(column: pa.Array) -> Indices:
    """From 1 in the order of the values, equal for equal ones; 0 for null."""
    ranks: Indices = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy()
    ranks = ranks.astype(np.int64)
    if column.null_count:
        ranks[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks


def log_order(rows: pa.Table) -> Indices:
    """The rows' indices in the order of the log, one partition after the other."""
    return np.lexsort((_numbers(rows, "offset"), _numbers(rows, "partition")))


def _numbers(rows: pa.Table, name: str) -> Indices:
    numbers: Indices = rows.column(name).to_numpy().astype(np.int64)
    return numbers
