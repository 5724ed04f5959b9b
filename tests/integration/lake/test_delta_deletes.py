"""A Delta table of which another writer has deleted a row by a deletion vector."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ottla.spark.errors import LakeError
from ottla.spark.lake.compaction import compact
from ottla.spark.lake.formats import DeltaTarget
from ottla.spark.lake.lake_table import TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.target import parse_target

FEATURE = "deletionVectors"


def deletion_of(row: int) -> dict[str, object]:
    """A deletion vector with this row, encoded as in the log: a roaring bitmap in base 85."""
    container = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    vector = struct.pack("<IQI", 1681511377, 1, 0) + container
    # Of whole groups of four bytes; b85encode has other digits than Z85.
    digits = base64.b85encode(vector + b"\0" * (-len(vector) % 4)).decode()
    return {
        "storageType": "i",
        "pathOrInlineDv": digits.translate(str.maketrans(_B85, _Z85)),
        "sizeInBytes": len(vector),
        "cardinality": 1,
    }


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_B85 = "0123456789" + _LETTERS.upper() + _LETTERS + "!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789" + _LETTERS + _LETTERS.upper() + ".-:+=^!/*?&<>()[]{}@%$#"


def actions(log: Path, version: int) -> list[dict[str, dict[str, object]]]:
    return [json.loads(line) for line in (log / f"{version:020}.json").read_text().splitlines()]


def write_log(log: Path, version: int, actions: list[dict[str, object]]) -> None:
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def delete_a_row(root: Path) -> str:
    """Delete a row as Spark does with `delta.enableDeletionVectors`; return the file's path."""
    log = root / "_delta_log"
    first = actions(log, 0)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [FEATURE], "writerFeatures": [FEATURE]}
    write_log(log, 0, [{"protocol": protocol} if "protocol" in each else {**each} for each in first])
    add = next(each["add"] for each in first if "add" in each)
    removed = {name: add[name] for name in ("path", "dataChange", "partitionValues", "size")}
    remove = {**removed, "deletionTimestamp": add["modificationTime"]}
    write_log(log, 2, [{"remove": remove}, {"add": {**add, "deletionVector": deletion_of(1)}}])
    return str(add["path"])


def test_a_file_with_a_deleted_row_is_recognised_and_not_rewritten(tmp_path: Path) -> None:
    for offsets in ([0, 1, 2], [3, 4]):
        write_deltalake(tmp_path, pa.table({"offset": pa.array(offsets, pa.int64())}), mode="append")
    table = DeltaTarget(parse_target(tmp_path)).open(None)
    before = table.files()
    path = delete_a_row(tmp_path)
    with pytest.raises(LakeError, match="or rows of them deleted"):
        publish(table, TableCommit(removed=before, is_same_data=True), {})
    table = DeltaTarget(parse_target(tmp_path)).open(None)
    assert {file.path: file.has_deletes for file in table.files()} == {file.path: file.path == path for file in before}
    assert compact(parse_target(tmp_path)).version is None
