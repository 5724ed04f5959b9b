"""A job for a cluster, as a user's: counts a topic, streams it into another one, and loads it into a lake.

It prints its progress on standard output, so that a test can disturb the cluster at that point.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import ottla.spark
from ottla.spark.lake import Loader

LOOK_EVERY_S: Final = 0.2


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(text: str) -> None:
    wanted = json.loads(text)
    at = {"kafka.bootstrap.servers": wanted["bootstrap"]}
    spark = ottla.spark.session("a job on a cluster")
    topic = spark.read.format("ottla").options(**at, subscribe=wanted["topic"], minPartitions="2").load()
    say("counted", topic.count())
    source = spark.readStream.format("ottla").options(**at, subscribe=wanted["topic"], startingOffsets="earliest")
    writer = (
        source.options(maxOffsetsPerTrigger=wanted["rows_per_batch"], minPartitions="2")
        .load()
        .select("key", "value")
        .writeStream.format("ottla")
        .options(**at, topic=wanted["streamed"], checkpointLocation=wanted["checkpoint"])
    )
    query = writer.trigger(availableNow=True).start()
    said = -1
    # Parts of a second are taken, too.
    while not query.awaitTermination(LOOK_EVERY_S):  # type: ignore[arg-type]
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > said:
            said = progress["batchId"]
            say("batch", said)
    say("streamed")
    loader = Loader(
        spark,
        wanted["bootstrap"],
        wanted["topic"],
        wanted["lake"],
        storage=wanted["storage"],
        rows_per_commit=wanted["rows_per_batch"],
    )
    loaded = loader.load(lambda state: say("commit"))
    say("loaded", loaded.rows_count)


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text())
