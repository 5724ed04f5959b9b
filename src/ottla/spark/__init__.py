"""The PySpark data source `ottla` and what is built on it."""
