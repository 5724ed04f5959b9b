"""Who is compared, and with which options: Ottla's source and Spark's connector, each as it comes and tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

OTTLA: Final = "ottla"
OTTLA_TUNED: Final = "ottla-tuned"
OFFICIAL: Final = "official"
OFFICIAL_TUNED: Final = "official-tuned"


@dataclass(frozen=True, slots=True)
class Contender:
    """`form` is Spark's name of the source; the options are added to those that both sources share.

    `session`: settings of the session while it writes; one that has some is measured only where rows are written.
    """

    name: str
    form: str
    read: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, str] = field(default_factory=dict)


CONTENDERS: Final[Mapping[str, Contender]] = {
    each.name: each
    for each in (
        Contender(OTTLA, "ottla"),
        # As docs/spark.md advises for rows that are not large: Spark counts no bytes after each row.
        Contender(OTTLA_TUNED, "ottla", session={"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}),
        Contender(OFFICIAL, "kafka"),
        Contender(
            OFFICIAL_TUNED,
            "kafka",
            # Large fetches, and polls that do not stop after 500 records; twice as much of either was slower.
            read={
                "kafka.max.partition.fetch.bytes": str(4 << 20),
                "kafka.fetch.max.bytes": str(64 << 20),
                "kafka.max.poll.records": "5000",
                "kafka.receive.buffer.bytes": str(1 << 20),
            },
            # Batches as large as Ottla's.
            write={"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "5", "kafka.buffer.memory": str(64 << 20)},
        ),
    )
}
