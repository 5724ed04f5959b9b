"""The data source `ottla`: batch and stream reads."""
