"""The anomalies that the checks of a history find."""

from __future__ import annotations

from enum import StrEnum

from tests.tally import Tally


class Anomaly(StrEnum):
    """Anomalies that must never happen.  Texts name the broken guarantee."""

    INCONSISTENT_OFFSET = "two values at one offset"
    FAILED_WRITE_READ = "a write that failed for good was read"
    DUPLICATE = "a value at two offsets"
    LOST_WRITE = "an acknowledged write below other reads was read by no client"
    UNSEEN = "an acknowledged write was not there at the end"
    PHANTOM = "a value was read that no client sent"
    POLL_SKIP = "a consumer was not given a record between two that it got"
    POLL_WENT_BACK = "a consumer was given an offset that is not above the one before"
    STALE_READ = "a reading of a whole partition lacks a write that was acknowledged before it began"
    SENDS_OUT_OF_ORDER = "a producer's later record stands before its earlier one"
    REAL_TIME_ORDER = "a write that began later stands below an offset already known"
    WATERMARK_WENT_BACK = "a high watermark went back"
    LATEST_WENT_BACK = "the latest offset was below what was answered, read or acknowledged before it was asked for"
    SILENT = "a client got no record and no acknowledgement for too long although a replica could serve it"
    DOUBLE_OWNER = "two owners of one partition in one generation"
    STALE_COMMIT = "a commit was accepted from a member that had lost the partition"
    COMMIT_LOST = "a committed offset that was acknowledged was read back as a lower one"
    COMMIT_WENT_BACK = "a later commit of the group moved the offset back"
    RESET = "a member was positioned below the committed offset, or beyond what it had not been given"
    NOT_DELIVERED = "an acknowledged write was given to no member of the group"


class Report(Tally[Anomaly]):
    def __init__(self) -> None:
        super().__init__(Anomaly)
