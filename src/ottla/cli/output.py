"""What the command writes, but for records: the one place where foreign text is escaped.

Ids of clients, groups and members, hosts, settings, a broker's messages and paths come from others.  A line stays one
line: no line break, escape sequence, direction mark or lone surrogate reaches a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import click

from ottla.model.errors import OttlaError
from ottla.observe.text import safe_line, safe_text

NOTHING: Final = "-"
# Of a terminal that was not made wider.
WIDTH: Final = 80
# Where the flag --output leaves the format for `data_lines`.
FORMAT: Final = "ottla.output"


class Format(StrEnum):
    """How a verb shows its data: for people, or in one of two forms for programs."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def say(*lines: str, err: bool = False) -> None:
    """Each argument as one line.  A tab stays: Kafka's tools have some between fields."""
    if not lines:
        return
    click.echo("\n".join("\t".join(map(safe_text, line.split("\t"))) for line in lines), err=err)


def data_lines(data: object) -> list[str]:
    """One object in the form that --output of the running verb names: a line of JSON, or a document of YAML."""
    context = click.get_current_context(silent=True)
    if context is None or context.meta.get(FORMAT) is not Format.YAML:
        return [json.dumps(data)]
    from ottla.cli.yaml_text import yaml_lines

    return yaml_lines(data)


def say_error(message: str, hint: str | None = None, details: Iterable[str] = ()) -> None:
    """In the journal of systemd all lines have the priority of an error: `journalctl -p warning` shows them.

    `details` have any number of lines, as a traceback of a user's function.
    """
    mark = _journal_mark()
    say(f"{mark}error: {safe_line(message)}", err=True)
    for line in (line for text in details for line in text.splitlines()):
        say(f"{mark}{safe_line(line)}", err=True)
    if hint:
        say(f"{mark}hint: {safe_line(hint)}", err=True)


def raise_together(refused: Sequence[OttlaError]) -> None:
    """One error for all refusals of a verb, which has printed its successes before."""
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise OttlaError("; ".join(str(error) for error in refused), hint=refused[0].hint)


def _journal_mark() -> str:
    if "JOURNAL_STREAM" not in os.environ:  # nor is logging imported for nothing
        return ""
    from ottla.observe.events import ERROR_MARK, is_journal

    return ERROR_MARK if is_journal(sys.stderr) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None) -> list[str]:
    """Rows below a header, each column as wide as its widest cell: for people and `awk`.

    None is shown as `-`; the last column is not padded.  With a `width` lists between commas continue in further lines
    of their column where a row would be wider.
    """
    cells = [list(head), *([NOTHING if cell in (None, "") else safe_text(str(cell)) for cell in row] for row in rows)]
    if width is not None:
        cells = _wrapped(cells, width)
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        " ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]]).rstrip()
        for row in cells
    ]


def _wrapped(cells: Sequence[list[str]], width: int) -> list[list[str]]:
    """The room that the columns without lists leave is shared by those with lists."""
    columns = range(len(cells[0]))
    has_list = [any("," in row[column] for row in cells) for column in columns]
    natural = [max(len(row[column]) for row in cells) for column in columns]
    if sum(natural) + len(natural) - 1 <= width or not any(has_list):
        return list(cells)
    taken = sum(size for size, is_list in zip(natural, has_list, strict=True) if not is_list)
    room = (width - taken - len(natural) + 1) // sum(has_list)
    found: list[list[str]] = []
    for row in cells:
        parts = [_broken(cell, room) if "," in cell else [cell] for cell in row]
        found += [
            [part[number] if number < len(part) else "" for part in parts] for number in range(max(map(len, parts)))
        ]
    return found


def _broken(text: str, room: int) -> list[str]:
    """A list in pieces of at most `room` characters, or of one element that is longer."""
    pieces = [""]
    for element in text.replace(",", ",\0").split("\0"):
        if pieces[-1] and len(pieces[-1]) + len(element) > room:
            pieces.append("")
        pieces[-1] += element
    return pieces
