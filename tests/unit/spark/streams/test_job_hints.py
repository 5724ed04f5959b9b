"""What the error of a stream advises."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from ottla.runtime.installation import install_command
from ottla.spark.streams.jobs import JobFailed, JobFunction, JobSettings, _hint_of, run_job


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            "[STREAM_FAILED] ... ottla.spark.errors.DataLoss: clicks-0: offsets 3 to 7 are gone",
            "failOnDataLoss to false",
        ),
        (
            "[STREAM_FAILED] ... ModuleNotFoundError: No module named 'deltalake'\n\nDuring handling of the above "
            "exception ... ottla.spark.errors.DataLoss: clicks-0: offsets 3 to 7 are gone",
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


@pytest.mark.parametrize(
    ("missing", "hint"),
    [
        ("deltalake", install_command("lake")),
        ("deltalake.exceptions", install_command("lake")),
        ("pyiceberg", install_command("iceberg")),
        ("google.protobuf", install_command("schemas")),
        ("views", "correct it"),
    ],
)
def test_function_of_a_job_that_lacks_a_package_says_what_to_install(missing: str, hint: str) -> None:
    def job(spark: Any, settings: JobSettings) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    no_session = cast(SparkSession, None)
    with pytest.raises(JobFailed, match="the job's function failed: ModuleNotFoundError: No module named") as raised:
        run_job(no_session, cast(JobFunction, job), JobSettings("localhost:9092", "c"), {}, lambda _: None)
    assert raised.value.hint == hint


def test_batch_that_lacks_a_package_says_what_to_install() -> None:
    message = "[STREAM_FAILED] ... process(good)\nModuleNotFoundError: No module named 'deltalake'\n"
    assert _hint_of(message) == install_command("lake")
    assert "a new run continues" in _hint_of(message.replace("deltalake", "views"))
