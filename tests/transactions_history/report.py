"""The anomalies that the checks of transactions find."""

from __future__ import annotations

from enum import StrEnum

from tests.tally import Tally


class Anomaly(StrEnum):
    """Anomalies that must never happen.  Texts name the broken guarantee."""

    TORN = "some results of a transaction are there at the end, and others are not"
    ABORTED_READ = "a result of a transaction that was not committed was read"
    LOST_COMMIT = "a transaction whose commit was answered is not there at the end"
    VANISHED = "a result that was read is not there at the end"
    INCONSISTENT_OFFSET = "two values at one offset"
    DUPLICATE = "a result at two offsets"
    PHANTOM = "a value was read where no transaction wrote it"
    INTERMEDIATE = "a last stable offset was between two results of a transaction"
    READ_SKIPPED = "a reader was not given a committed result below one that it got"
    READ_WENT_BACK = "a reader was given an offset that is not above the one before"
    OUT_OF_ORDER = "a producer's later result is below its earlier one"
    REAL_TIME_ORDER = "a transaction that started after another one's commit has a result below it"
    INPUT_TWICE = "an input was consumed by two committed transactions"
    INPUT_LOST = "an input below the committed offset was consumed by no committed transaction"
    OFFSET_OF_NO_COMMIT = "a committed offset is of no committed transaction"
    OFFSET_LOST = "a committed offset is below that of a transaction whose commit was answered before"
    WRONG_STATE = "a committed transaction knew another state than that of its predecessor"
    STABLE_WENT_BACK = "a last stable offset was below one that was answered before it was requested"
    STUCK = "the last stable offset did not reach the high watermark after all faults"


class Report(Tally[Anomaly]):
    def __init__(self) -> None:
        super().__init__(Anomaly)
