"""A stream with dead letters, whose driver may end by SIGKILL, with its JVM and its workers, at a point of a batch.

    python -m tests.integration.spark.dying_letters BOOTSTRAP TOPIC DIRECTORY [POINT BATCH]

Points: `letters`: the topic has the letters of the batch, the table has not; `processed`: all is done but the commit.
`DIRECTORY/processed/BATCH.json` has the values that were good.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import DataFrame

import ottla.spark
from ottla.spark import dead_letters as route
from ottla.spark.dead_letters import DeadLetters, append_letters, attempt
from ottla.spark.lake.target import LakeTarget

ROWS_OF_BATCH: Final = 20


def number_of(value: bytes) -> int:
    return int(value)


def die() -> None:
    # This process leads its group, and the JVM is in it.
    assert os.getpgrp() == os.getpid()
    os.killpg(0, signal.SIGKILL)


def run(bootstrap: str, topic: str, directory: Path, point: str, dying_batch: int) -> None:
    spark = ottla.spark.session("dying letters", master="local[2]")
    source = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = (
        source.option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(ROWS_OF_BATCH))
        .load()
        .withColumn("number", attempt(number_of, "int")("value"))
    )

    def append(target: LakeTarget, letters: Iterator[Any], app_id: str, version: int) -> None:
        if point == "letters" and version == dying_batch:
            die()
        append_letters(target, letters, app_id, version)

    def process(good: DataFrame, batch_id: int) -> None:
        found = [row["number"]["result"] for row in good.select("number").collect()]
        (directory / "processed").mkdir(exist_ok=True)
        (directory / "processed" / f"{batch_id}.json").write_text(json.dumps(found))
        if point == "processed" and batch_id == dying_batch:
            die()

    dead_letters = DeadLetters(bootstrap, error="number.error", table=directory / "dead")
    writer = rows.writeStream.foreachBatch(dead_letters.each_batch(process))
    with patch.object(route, "append_letters", append):
        query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, BOOTSTRAP, TOPIC, DIRECTORY, *WHERE = sys.argv
    run(BOOTSTRAP, TOPIC, Path(DIRECTORY), *((WHERE[0], int(WHERE[1])) if WHERE else ("", -1)))
