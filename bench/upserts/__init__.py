"""Changes of a database's rows into lake tables: Ottla's upserts beside Spark's own MERGE, and through kills."""
