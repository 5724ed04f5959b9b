"""Settings of brokers that tests share: they keep records of any date.

A record of a fixed day is older than `log.retention.ms`.  A broker that runs for minutes checks its retention between
two steps of a test, and would remove what the test has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.model.limits import DAY_MS

KEEPS_OLD_RECORDS: Final[Mapping[str, str]] = {"log.retention.check.interval.ms": str(DAY_MS)}
# Apache Kafka's first check comes 30 s after its start.
APACHE_KAFKA_KEEPS_OLD_RECORDS: Final[Mapping[str, str]] = {
    **KEEPS_OLD_RECORDS,
    "log.initial.task.delay.ms": str(DAY_MS),
}
