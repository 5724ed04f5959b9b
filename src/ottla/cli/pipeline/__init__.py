"""The verbs of the pipeline: load, stream, mirror, dead-letter, registry, audit, spark-archive."""
