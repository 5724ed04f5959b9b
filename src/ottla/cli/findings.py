"""What `ottla doctor` finds: one line each, with what to do."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """PROBLEM: it will not start, or not do what was asked for.  WARNING: it works, and somebody should look."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """`advice` says what to do; nothing is to be done about what is ok."""

    area: str
    level: Level
    text: str
    advice: str | None = None


def ok(area: str, text: str) -> Finding:
    return Finding(area, Level.OK, text)


def warning(area: str, text: str, advice: str) -> Finding:
    return Finding(area, Level.WARNING, text, advice)


def problem(area: str, text: str, advice: str) -> Finding:
    return Finding(area, Level.PROBLEM, text, advice)


def finding_object(finding: Finding) -> dict[str, object]:
    return {"area": finding.area, "level": finding.level.value, "text": finding.text, "advice": finding.advice}


def finding_text(finding: Finding) -> str:
    line = f"{finding.level.value:<8} {finding.area}: {finding.text}"
    return line if finding.advice is None else f"{line}\n         {finding.advice}"
