"""Audit: how many records of each topic passed each tier, by event-time window, and what is missing where.

Importing this starts nothing; a name is imported when it is first used.

Count, Report      what a counter says, as a message of the topic `ottla-audit`      ottla.audit.count
Tally              one counter's counts, and what of them is to be told             ottla.audit.tally
AuditBook          the newest word of each counter                                  ottla.audit.book
compare            loss, surplus and lateness of each tier and window               ottla.audit.comparison
completeness       until when a topic is complete, in event time                    ottla.audit.completeness
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.audit.book import AuditBook
    from ottla.audit.comparison import TierLine, compare
    from ottla.audit.completeness import Completeness, CompletenessRules, completeness
    from ottla.audit.count import Count, Report
    from ottla.audit.tally import Tally

__all__ = [
    "AuditBook",
    "Completeness",
    "CompletenessRules",
    "Count",
    "Report",
    "Tally",
    "TierLine",
    "compare",
    "completeness",
]

# Where the public names are.
_HOMES: Final = {
    "AuditBook": "ottla.audit.book",
    "Completeness": "ottla.audit.completeness",
    "CompletenessRules": "ottla.audit.completeness",
    "Count": "ottla.audit.count",
    "Report": "ottla.audit.count",
    "Tally": "ottla.audit.tally",
    "TierLine": "ottla.audit.comparison",
    "compare": "ottla.audit.comparison",
    "completeness": "ottla.audit.completeness",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.audit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
