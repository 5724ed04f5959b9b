"""Groups of Kafka's classic protocol: members join, their leader assigns, all sync."""
