"""A stream that copies a topic: `query BOOTSTRAP SOURCE TARGET CHECKPOINT DELIVERY follow|rest`.

`follow`: until it is killed.  `rest`: what the source has now.
"""

from __future__ import annotations

import sys
from typing import Final

import ottla.spark

# So small that the rows of the whole run are many batches, and a kill meets each step of one.
ROWS_OF_BATCH: Final = 2_000


def main(bootstrap: str, source: str, target: str, checkpoint: str, delivery: str, extent: str) -> None:
    # With further attempts of a task whose worker was killed.
    spark = ottla.spark.session("sink under kills", master="local[2,4]")
    stream = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    rows = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(ROWS_OF_BATCH)).load()
    writer = rows.select("key", "value").writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("delivery", delivery).option("checkpointLocation", checkpoint)
    if extent == "rest":
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


main(*sys.argv[1:])
