"""The findings of `ottla doctor`: one line each, with advice."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """PROBLEM: it will not start, or not work as configured.  WARNING: it works, and needs attention."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """`advice` says what to do; OK needs none."""

    area: str
    level: Severity
    text: str
    advice: str | None = None


def ok(area: str, text: str) -> Finding:
    return Finding(area, Severity.OK, text)


def warning(area: str, text: str, advice: str) -> Finding:
    return Finding(area, Severity.WARNING, text, advice)


def problem(area: str, text: str, advice: str) -> Finding:
    return Finding(area, Severity.PROBLEM, text, advice)


def finding_object(finding: Finding) -> dict[str, object]:
    return {"area": finding.area, "level": finding.level.value, "text": finding.text, "advice": finding.advice}


def finding_text(finding: Finding) -> list[str]:
    line = f"{finding.level.value:<8} {finding.area}: {finding.text}"
    return [line] if finding.advice is None else [line, f"         {finding.advice}"]
