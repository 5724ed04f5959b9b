"""The sink of the data source `ottla`: batches and streams."""
