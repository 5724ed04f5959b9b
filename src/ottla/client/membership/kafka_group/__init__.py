"""A consumer's place in a group of Kafka's own protocols, with a broker of any kind."""
