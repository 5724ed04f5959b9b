"""What TLS costs a broker, beside Apache Kafka's."""
