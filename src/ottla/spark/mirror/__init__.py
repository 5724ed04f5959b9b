"""A mirror whose records are copied by Spark's tasks: many partitions, on many machines.

    import ottla.spark
    from ottla.mirror import MirrorOptions, Names
    from ottla.spark.mirror import SparkMirror

    spark = ottla.spark.session("mirror")
    mirror = SparkMirror(spark, "live:9092", "offline:9092", MirrorOptions(topics=Names(("page-.*",))))
    report = mirror.run()                     # what the source has now
    mirror.follow(every_s=60)                 # and what comes

See `ottla.mirror` for what is copied and what is guaranteed.
"""

from ottla.spark.mirror.spark_mirror import MirrorTaskFailed, SparkMirror

__all__ = ["MirrorTaskFailed", "SparkMirror"]
