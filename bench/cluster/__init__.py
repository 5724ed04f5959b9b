"""./dev bench cluster: three brokers of Ottla with ZooKeeper beside three of Apache Kafka."""
