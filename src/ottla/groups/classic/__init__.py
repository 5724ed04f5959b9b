"""Groups of Kafka's classic protocol: members join, the leader assigns, all sync."""
