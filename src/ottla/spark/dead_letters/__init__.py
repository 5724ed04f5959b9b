"""Dead letters of a stream: rows that could not be processed go to a topic and a table before their batch is committed.

    from ottla.spark.dead_letters import DeadLetters, attempt

    parsed = clicks.withColumn("parsed", attempt(json.loads, "member bigint, page string")("value"))
    dead_letters = DeadLetters("localhost:9092", error="parsed.error", table="/lake/dead-letters")
    query = parsed.writeStream.foreachBatch(dead_letters.each_batch(write)).start()

DeadLetters     divides each batch: rows with an error are set aside, the others processed
attempt         a Python function as a column: its result, or the error that it raised

They are the letters of `ottla.dead_letters`, which shows them and puts them back.
"""

from __future__ import annotations

from ottla.spark.dead_letters.route import DeadLetters, attempt

__all__ = ["DeadLetters", "attempt"]
