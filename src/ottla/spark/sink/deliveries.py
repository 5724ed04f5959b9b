"""Each micro-batch of a query once: what the driver does with a batch, by what the cluster answers.  Pure.

Spark writes down what a batch reads, runs it, and then writes down that it has run.  A driver that dies in between runs
the batch again, with the same rows, and the former driver may still be alive.  So a batch's records and its number, a
`Delivery`, are written in one transaction of an id that only this query uses, in this order:

TAKE_OVER   the id is taken over: an open transaction of a former driver is aborted, a decided one is completed, and
            that driver can write no more
READ_LAST   the last delivery that was committed.  Not earlier: the former driver could commit one after the read
WRITE       records and delivery, in a transaction
COMMIT      its end.  When its answer does not come, the next driver finds out at its own READ_LAST
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.model.counted import counted
from ottla.spark.errors import SparkUserError

_FORM: Final = 1
FROM_BATCH_OPTION: Final = "exactlyOnceFromBatch"


class NotDelivered(SparkUserError):
    """A batch is not written, since that could lose rows or write them twice."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The rows of a micro-batch, which are written, or are about to be."""

    batch_id: int
    rows_count: int


class Step(Enum):
    TAKE_OVER = "take over"
    READ_LAST = "read the last delivery"
    WRITE = "write"
    COMMIT = "commit"
    DONE = "done"


class DeliveryRun:
    """One run of a batch's commit.  The caller does `step`, and reports it; an error ends the run.

    `from_batch`: the first batch of a query that was not exactly once before.
    """

    def __init__(self, delivery: Delivery, from_batch: int | None = None) -> None:
        self.delivery: Final = delivery
        self.step = Step.TAKE_OVER
        self.is_repeated = False
        self._from_batch = from_batch

    def on_taken_over(self) -> None:
        self._advance(Step.TAKE_OVER, Step.READ_LAST)

    def on_last(self, last: Delivery | None) -> None:
        """None: no delivery of this query is known.  Raises NotDelivered."""
        self.is_repeated = is_delivered(self.delivery, last, self._from_batch)
        self._advance(Step.READ_LAST, Step.DONE if self.is_repeated else Step.WRITE)

    def on_written(self) -> None:
        self._advance(Step.WRITE, Step.COMMIT)

    def on_committed(self) -> None:
        self._advance(Step.COMMIT, Step.DONE)

    def _advance(self, done: Step, following: Step) -> None:
        assert self.step is done, f"{done.value} comes when it is due, and not at {self.step.value}"
        self.step = following


def is_delivered(delivery: Delivery, last: Delivery | None, from_batch: int | None) -> bool:
    """Whether the batch is written already; if not, it may be written.  Raises NotDelivered for any other case.

    Spark commits every batch in turn, those without rows too, so each delivery follows its predecessor without a gap.
    """
    number = delivery.batch_id
    if last is not None and last.batch_id == number:
        if last.rows_count != delivery.rows_count:
            raise NotDelivered(
                f"batch {number} was written with {counted(last.rows_count, 'row')}, and has {delivery.rows_count:,}",
                hint="its query gives other rows when it runs again, or its checkpoint was changed; start a new query "
                "with another checkpointLocation",
            )
        return True
    if last is not None and last.batch_id > number:
        raise NotDelivered(
            f"batch {number} follows batch {last.batch_id}, which was written already",
            hint="the checkpoint is older than what was written; start a new query with another checkpointLocation",
        )
    follows = number == 0 if last is None else number == last.batch_id + 1
    if follows or number == from_batch:
        return False
    known = "no earlier batch is known" if last is None else f"the last that is known is batch {last.batch_id}"
    raise NotDelivered(
        f"batch {number} cannot be written exactly once: {known}",
        hint="the topic with the query's deliveries is gone, or the query has run without exactly-once; after a check "
        f"that the batch is not in its topic, continue with the option {FROM_BATCH_OPTION}={number}",
    )


def to_json(delivery: Delivery) -> bytes:
    return json.dumps({"form": _FORM, "batch": delivery.batch_id, "rows": delivery.rows_count}).encode()


def from_json(data: bytes | None) -> Delivery:
    """Raises NotDelivered."""
    try:
        found = json.loads(data or b"null")
        if found["form"] != _FORM:
            raise ValueError(f"its form is {found['form']}, and not {_FORM}")
        return Delivery(int(found["batch"]), int(found["rows"]))
    except (ValueError, TypeError, KeyError) as error:
        raise NotDelivered(
            f"the last delivery of this query cannot be read: {error!r}",
            hint="only this query writes to the topic of its deliveries; a later version of ottla may have",
        ) from None
