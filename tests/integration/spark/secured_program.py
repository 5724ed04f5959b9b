"""Reads, writes and streams with options that hold secrets, under Spark's event log: FOLDER, the options on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ottla.spark


def main() -> None:
    folder = Path(sys.argv[1])
    given = json.load(sys.stdin)
    connection, topic = given["connection"], given["topic"]
    events = folder / "events"
    events.mkdir()
    spark = ottla.spark.session(
        "secured",
        master="local[2]",
        **{
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.sql.ui.explainMode": "extended",
        },
    )
    rows = spark.read.format("ottla").options(**connection).option("subscribe", topic).load()
    count = rows.count()
    writer = rows.select("key", "value").write.format("ottla").options(**connection)
    writer.option("topic", f"{topic}-copy").mode("append").save()
    stream = spark.readStream.format("ottla").options(**connection)
    query = (
        stream.option("subscribe", f"{topic}-copy")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("ottla")
        .options(**connection)
        .option("topic", f"{topic}-streamed")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    execution = rows._jdf.queryExecution()
    plans = [execution.toString(), execution.debug().toString(), query._jsq.explainInternal(True), repr(rows)]
    (folder / "plans").write_text("\n".join(str(plan) for plan in plans))
    (folder / "progress").write_text("\n".join(each.json for each in query.recentProgress))
    spark.stop()
    sys.stdout.write(f"{count}\n")


if __name__ == "__main__":
    main()
