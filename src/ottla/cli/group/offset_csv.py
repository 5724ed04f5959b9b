"""Offsets as CSV, in the form of kafka-consumer-groups: `topic,partition,offset`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.model.limits import INT64_MAX, MIB
from ottla.runtime.text_file import read_text_file

_FILE_BYTES_MAX: Final = 64 * MIB
_COLUMNS: Final = 3
# kafka-consumer-groups exports several groups with the group as first column.
_COLUMNS_WITH_GROUP: Final = 4
_PARTITION_MAX: Final = 2**31 - 1


def write_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for partition, offset in sorted(offsets.items()):
        writer.writerow([partition.topic, partition.partition, offset])
    return out.getvalue()


def read_offsets(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """The offsets of a file; lines of four columns begin with the group, and only this one's count.

    Raises `OttlaError` that names the line.
    """
    content = read_text_file(path, _FILE_BYTES_MAX, _FORM)
    try:
        rows = list(csv.reader(io.StringIO(content), strict=True))
    except csv.Error as error:
        raise OttlaError(f"{path} is not CSV: {error}", hint=_FORM) from error
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == _COLUMNS_WITH_GROUP:
            if cells[0] != group_id:
                continue
            cells = cells[1:]
        partition, offset = _parsed(cells, f"{path} line {number}")
        if partition in found:
            raise OttlaError(f"{path} line {number}: {partition} is listed twice", hint=_FORM)
        found[partition] = offset
    if not found:
        raise OttlaError(f"{path} has no offsets for group {group_id}", hint=_FORM)
    return found


def _parsed(cells: list[str], where: str) -> tuple[TopicPartition, int]:
    if len(cells) != _COLUMNS:
        raise OttlaError(f"{where}: {len(cells)} columns", hint=_FORM)
    topic, partition, offset = cells
    problem = topic_name_problem(topic)
    if problem is not None:
        raise OttlaError(f"{where}: {problem}", hint=_FORM)
    return TopicPartition(topic, _number(partition, _PARTITION_MAX, where)), _number(offset, INT64_MAX, where)


def _number(text: str, limit: int, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= limit):
        raise OttlaError(f"{where}: {text!r} is not a number from 0 to {limit}", hint=_FORM)
    return int(text)


_FORM: Final = "each line is topic,partition,offset as --export writes it"
