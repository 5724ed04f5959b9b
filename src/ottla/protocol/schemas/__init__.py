"""The messages, a module for each API: field names and versions as in Apache Kafka's message definitions."""
