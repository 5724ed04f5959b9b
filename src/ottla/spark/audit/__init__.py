"""The audit on Spark: counts of columns and tables, and the job that compares all tiers.

window_counts      records by window, of a column of timestamps    ottla.spark.audit.window_counts
"""
