"""The table of dead letters: a batch's letters are in it once, though the batch may be run again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.dead_letters.letter_columns import TABLE_SCHEMA
from ottla.spark.lake.tables import append_once, newest_version, open_delta
from ottla.spark.lake.target import LakeTarget

# The driver holds so many rows of the table at a time; each such part is one commit.
ROWS_OF_COMMIT: Final = 5_000
COMMITS_OF_BATCH_MAX: Final = 1 << 20
_PARTITION_BY: Final = ("topic",)
# What is set aside at a place, by whom.
_IDENTITY: Final = ("cluster_id", "topic", "topic_id", "partition", "offset", "stage")

_Identity: TypeAlias = tuple[Any, ...]


def append_letters(target: LakeTarget, letters: Iterator[Any], app_id: str, version: int) -> None:
    """`letters`: rows of `TABLE_SCHEMA`, of the batch `version` of `app_id`.

    A batch that ended between its commits may have other letters when it is run again, since functions fail at times:
    so what the table has then is told by their places, and not by the commits' numbers.  Raises `LakeError`.
    """
    app_id = f"ottla-dead-letters/{app_id}"
    first = version * COMMITS_OF_BATCH_MAX
    newest = newest_version(target, app_id)
    if newest is not None and newest >= first + COMMITS_OF_BATCH_MAX:
        return  # a later batch's: this one was whole
    is_run_again = newest is not None and newest >= first
    number = first if newest is None or not is_run_again else newest + 1
    for part in _parts(letters):
        if is_run_again:
            part = _without_known(target, part)
            if not part.num_rows:
                continue
        assert number < first + COMMITS_OF_BATCH_MAX, "a batch has fewer rows"
        append_once(target, part, app_id=app_id, version=number, partition_by=_PARTITION_BY)
        number += 1


def _parts(rows: Iterator[Any]) -> Iterator[pa.Table]:
    while part := list(islice(rows, ROWS_OF_COMMIT)):
        columns = {name: [row[name] for row in part] for name in TABLE_SCHEMA.names}
        columns["headers"] = [None if each is None else [pair.asDict() for pair in each] for each in columns["headers"]]
        yield pa.table(columns, schema=TABLE_SCHEMA)


def _without_known(target: LakeTarget, part: pa.Table) -> pa.Table:
    offsets = part["offset"]
    near = (
        pc.field("topic").isin(part["topic"].unique())
        & (pc.field("offset") >= pc.min(offsets))
        & (pc.field("offset") <= pc.max(offsets))
    )
    dataset = open_delta(target, TABLE_SCHEMA, _PARTITION_BY).to_pyarrow_dataset()
    known = set(_identities(dataset.to_table(columns=list(_IDENTITY), filter=near)))
    return part.filter(pa.array([each not in known for each in _identities(part)], pa.bool_()))


def _identities(letters: pa.Table) -> Iterator[_Identity]:
    return zip(*(letters[name].to_pylist() for name in _IDENTITY), strict=True)
