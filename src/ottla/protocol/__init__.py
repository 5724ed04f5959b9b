"""The Kafka wire protocol: framing, message codecs, the table of APIs."""
