"""Rows that are computed once and then kept by Spark's executors (local checkpoints)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from ottla.observe.events import fields
from ottla.spark.jvm import free_checkpoint

log = logging.getLogger(__name__)

# Another executor may die while the lost rows are computed again.
ATTEMPTS_MAX: Final = 3
_LOST: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


class CheckpointedRows:
    """`rows` have no lineage.

    So reads of them fail after their executor died; they are never computed a second time, perhaps with another result.
    """

    def __init__(self, rows: DataFrame) -> None:
        self.rows: Final = rows.localCheckpoint()

    def release(self) -> None:
        """Free them now instead of at the driver's next garbage collection; afterwards `rows` cannot be read."""
        try:
            free_checkpoint(self.rows)
        except (Py4JError, OSError) as error:
            # The application ends, and its executors with it: the results of the batch stay.
            log.debug("kept_rows.not_freed", extra=fields(error=str(error)))


def retry_lost_rows(batch: Callable[[], None]) -> None:
    """Run a batch that keeps rows and reads them; run all of it again when an executor died with some of them."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            batch()
            return
        except Exception as error:
            if attempt == ATTEMPTS_MAX or not _is_of_lost_rows(error):
                raise
            log.warning("kept_rows.lost", extra=fields(attempt=attempt))


def _is_of_lost_rows(error: BaseException) -> bool:
    """Py4J's error or PySpark's, or an error that a function of the user raised from it."""
    cause: BaseException | None = error
    while cause is not None:
        if _LOST in str(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
