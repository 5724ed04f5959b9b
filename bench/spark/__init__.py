"""The data source `ottla` beside Spark's official Kafka connector, in one Spark session, against one broker."""
