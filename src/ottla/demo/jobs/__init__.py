"""The demo's jobs on Spark, written as a user writes them."""
