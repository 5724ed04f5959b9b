"""Ottla's own client beside the other Python clients of Kafka, against one broker."""
