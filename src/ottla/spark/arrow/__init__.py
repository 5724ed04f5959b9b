"""Record batches as Arrow columns, and Arrow columns as record batches.  Without pyspark."""
