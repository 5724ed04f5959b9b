"""The Kafka wire protocol: framing, messages of every offered API version, fast codecs for Produce and Fetch."""
