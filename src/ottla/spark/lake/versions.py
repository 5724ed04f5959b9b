"""Changes of rows whose earlier versions are kept: which versions each key has, and from when until when.  Pure.

Every change has a sequence.  One with a smaller sequence than the key had before has no effect; of equal ones the later
in the log counts.  So those that count have growing sequences, and a version is valid from its own up to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.lake.changes import (
    DELETED,
    VALID_FROM,
    VALID_TO,
    Decision,
    Indices,
    KeyChanges,
    UpsertRule,
    key_column,
    log_order,
    ranks_of,
    whole,
)


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """The changes that may count, by key and by sequence; `codes`: of each row the index of its key in `keys`."""

    rows: pa.Table
    keys: pa.Array
    codes: Indices
    sequence_by: str

    @staticmethod
    def of(rows: pa.Table, rule: UpsertRule) -> KeyVersions:
        """Rows in any order, at least one; each has a key and a sequence."""
        assert rule.sequence_by is not None
        coded = key_column(rows, rule.keys).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        order = log_order(rows)
        order = order[np.argsort(codes[order], kind="stable")]
        ranks = ranks_of(whole(rows.column(rule.sequence_by)))[order]
        codes = codes[order]
        # In one line: a key's ranks are above those of the keys before it.
        heights = codes * (int(ranks.max()) + 1) + ranks
        counts = heights == np.maximum.accumulate(heights)
        order, codes, heights = order[counts], codes[counts], heights[counts]
        is_last = np.append(heights[1:] != heights[:-1], True)
        return KeyVersions(rows.take(pa.array(order[is_last])), coded.dictionary, codes[is_last], rule.sequence_by)

    def needed(self) -> pa.Table:
        """The rows that may count, for any table."""
        return self.rows

    def decide(self, stored: pa.Array | None) -> Decision:
        """By the sequence of each key's current version in the table (null: there is none)."""
        count = len(self.keys)
        mine = whole(self.rows.column(self.sequence_by))
        given = pa.nulls(count, mine.type) if stored is None else stored.cast(mine.type)
        ranks = ranks_of(pa.concat_arrays([mine, given]))
        stored_ranks = ranks[len(mine) :]
        due = np.flatnonzero(ranks[: len(mine)] >= stored_ranks[self.codes])
        codes = self.codes[due]
        is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
        is_newest = np.append(codes[1:] != codes[:-1], True)[: len(codes)]
        is_changed = np.zeros(count, np.bool_)
        is_changed[codes] = True
        # The version that the table has ends where the first that is due starts; one of the same sequence replaces it.
        closing = np.full(count, -1, np.int64)
        firsts, first_codes = due[is_first], codes[is_first]
        is_later = ranks[firsts] > stored_ranks[first_codes]
        closing[first_codes[is_later]] = firsts[is_later]
        rows = self.rows.take(pa.array(due))
        starts = mine.take(pa.array(due))
        following = np.where(is_newest, -1, np.arange(1, len(due) + 1))
        ends = starts.take(pa.array(following, mask=following < 0))
        is_deleted = whole(rows.column(DELETED))
        # A deleted row is valid at no time, and keeps the sequence.
        ends = pc.if_else(pc.and_(is_deleted, pa.array(is_newest)), starts, ends)
        rows = rows.append_column(VALID_FROM, starts).append_column(VALID_TO, ends)
        is_past = pc.and_(pa.array(~is_newest), pc.invert(is_deleted))
        return Decision(
            is_changed,
            rows.filter(pa.array(is_newest)),
            rows.filter(is_past),
            mine.take(pa.array(closing, mask=closing < 0)),
        )


def closed(rows: pa.Table, ends: pa.Array) -> pa.Table:
    """Rows of current versions that end at these sequences; those without an end, and deleted ones, are left out."""
    at = rows.schema.get_field_index(VALID_TO)
    rows = rows.set_column(at, VALID_TO, ends)
    return rows.filter(pc.and_(ends.is_valid(), pc.invert(whole(rows.column(DELETED)))))


def changes_of(rows: pa.Table, rule: UpsertRule) -> KeyChanges | KeyVersions:
    return KeyVersions.of(rows, rule) if rule.keeps_history else KeyChanges.of(rows, rule)


def with_validity(schema: pa.Schema, rule: UpsertRule) -> pa.Schema:
    """Of the table, with the columns that say when its rows are valid."""
    assert rule.sequence_by is not None
    kind = schema.field(rule.sequence_by).type
    return schema.append(pa.field(VALID_FROM, kind)).append(pa.field(VALID_TO, kind))
