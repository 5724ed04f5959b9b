"""How much one micro-batch reads, and how much one task."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ottla.spark.errors import SparkOptionError
from ottla.spark.options.option_reader import OptionReader

TASKS_MAX: Final = 100_000
TRIGGER_DELAY_MS_DEFAULT: Final = 15 * 60 * 1000
_TIME: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_MS: Final = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch; None: no limit.

    rows_max             offsets in all, in proportion to each partition's backlog
    bytes_max            about so many stored bytes, by the average of each log
    partition_rows_max   offsets of one partition
    rows_min             fewer are left for a later batch, for `delay_max_ms` at most
    """

    rows_max: int | None = None
    bytes_max: int | None = None
    partition_rows_max: int | None = None
    rows_min: int | None = None
    delay_max_ms: int = TRIGGER_DELAY_MS_DEFAULT

    @property
    def given(self) -> list[str]:
        """The names of the options that set a limit."""
        limits = {
            "maxOffsetsPerTrigger": self.rows_max,
            "maxBytesPerTrigger": self.bytes_max,
            "maxOffsetsPerPartition": self.partition_rows_max,
            "minOffsetsPerTrigger": self.rows_min,
        }
        return [name for name, limit in limits.items() if limit is not None]


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """`tasks_min`: at least so many tasks, if there are so many offsets.  `rows_max`: offsets of one task."""

    tasks_min: int | None = None
    rows_max: int | None = None


def parse_trigger_limits(reader: OptionReader) -> TriggerLimits:
    """Raises `SparkOptionError`, which names the option."""
    rows_max = reader.number("maxOffsetsPerTrigger", at_least=1)
    rows_min = reader.number("minOffsetsPerTrigger", at_least=1)
    delay = reader.text("maxTriggerDelay")
    if rows_min is None and delay is not None:
        raise SparkOptionError("the option 'maxTriggerDelay' works only with 'minOffsetsPerTrigger'")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise SparkOptionError(
            f"the option 'minOffsetsPerTrigger' is {rows_min}, more than 'maxOffsetsPerTrigger', which is {rows_max}"
        )
    return TriggerLimits(
        rows_max,
        reader.number("maxBytesPerTrigger", at_least=1),
        reader.number("maxOffsetsPerPartition", at_least=1),
        rows_min,
        TRIGGER_DELAY_MS_DEFAULT if delay is None else _time_ms("maxTriggerDelay", delay),
    )


def parse_task_sizes(reader: OptionReader) -> TaskSizes:
    """Raises `SparkOptionError`, which names the option."""
    return TaskSizes(
        reader.number("minPartitions", at_least=1, at_most=TASKS_MAX),
        reader.number("maxRecordsPerPartition", at_least=1),
    )


def _time_ms(name: str, text: str) -> int:
    """As Spark writes times: `30s`, `15m`, `1h`; milliseconds without a unit."""
    match = _TIME.fullmatch(text.lower())
    if match is None:
        raise SparkOptionError(f"the option {name!r} is {text!r}", hint="write a time like 30s, 15m or 1h")
    return round(int(match[1]) * _UNIT_MS[match[2] or "ms"])
