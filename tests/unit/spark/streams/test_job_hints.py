"""What the error of a stream advises."""

from __future__ import annotations

import pytest

from ottla.spark.streams.jobs import _hint_of


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            "[STREAM_FAILED] ... ottla.spark.errors.DataLoss: clicks-0: offsets 3 to 7 are gone",
            "failOnDataLoss to false",
        ),
        ("[STREAM_FAILED] ... BadCheckpoint: the checkpoint has no offsets", "start with another checkpoint"),
        ("[STREAM_FAILED] ... ReadTimedOut: nothing came in time", "a new run continues from the checkpoint"),
    ],
)
def test_advice_names_a_checkpoint_that_can_go_on_only_where_it_can(message: str, advice: str) -> None:
    hint = _hint_of(message)
    assert advice in hint
    assert ("a new run continues" in hint) is ("ReadTimedOut" in message)
