"""The results of comparisons as messages of the topic `ottla-audit-results`: the newest of each key counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ottla.audit.comparison import TierLine
from ottla.model.errors import WireError
from ottla.model.windows import Window

_NUMBERS: Final = ("records", "missing_records", "surplus_records", "late_records", "late_ms")


def result_key(line: TierLine) -> bytes:
    return f"{line.tier}/{line.topic}/{line.window.start_ms}/{line.window.size_ms}".encode()


def result_fields(line: TierLine) -> dict[str, object]:
    """The columns of the table of results, but for the time of the comparison."""
    return {
        "topic": line.topic,
        "window_start_ms": line.window.start_ms,
        "window_ms": line.window.size_ms,
        "tier": line.tier,
        "records": line.records,
        "expected_records": line.expected_records,
        "missing_records": line.missing_records,
        "surplus_records": line.surplus_records,
        "late_records": line.late_records,
        "late_ms": line.late_ms,
        "completeness": line.completeness,
    }


def result_to_json(line: TierLine, compared_ms: int) -> bytes:
    return json.dumps(result_fields(line) | {"compared_ms": compared_ms}, separators=(",", ":")).encode()


def result_from_json(data: bytes) -> tuple[TierLine, int]:
    """The line, and when it was compared.  Raises WireError."""
    try:
        found = json.loads(data)
        texts = [found["topic"], found["tier"]]
        numbers = [found[name] for name in ("window_start_ms", "window_ms", "compared_ms", *_NUMBERS)]
        expected = found["expected_records"]
        if not all(isinstance(each, str) for each in texts) or not all(type(each) is int for each in numbers):
            raise WireError("a result of the audit has a field of a wrong type")
        if expected is not None and type(expected) is not int:
            raise WireError("a result's expected_records is no number")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"a result of the audit cannot be read: {error!r}") from None
    topic, tier = texts
    start_ms, size_ms, compared_ms, records, *others = numbers
    return TierLine(topic, Window(start_ms, size_ms), tier, records, expected, *others), compared_ms


def newest(values: Iterable[bytes | None]) -> dict[bytes, TierLine]:
    """The newest line of each key; what is no result is left out."""
    found: dict[bytes, tuple[int, TierLine]] = {}
    for value in values:
        try:
            line, compared_ms = result_from_json(value or b"")
        except WireError:
            continue
        key = result_key(line)
        if key not in found or found[key][0] <= compared_ms:
            found[key] = compared_ms, line
    return {key: line for key, (_, line) in found.items()}
