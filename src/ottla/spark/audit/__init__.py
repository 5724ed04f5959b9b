"""The audit on Spark: the job that compares all tiers, and counts of tables.

run_audit          compares, into a table and a topic                      ottla.spark.audit.job
LoadedTable        what loads have committed to a table                    ottla.spark.audit.table_counts
table_counts       records and duplicates by window, of a table itself     ottla.spark.audit.table_counts
window_counts      records by window, of a column of timestamps            ottla.spark.lake.tasks

A name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.spark.audit.job import AuditRun, run_audit
    from ottla.spark.audit.table_counts import LoadedTable

__all__ = ["AuditRun", "LoadedTable", "run_audit"]

# The others are modules of their function's name.
_HOMES: Final = {
    "AuditRun": "ottla.spark.audit.job",
    "LoadedTable": "ottla.spark.audit.table_counts",
    "run_audit": "ottla.spark.audit.job",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.spark.audit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
