"""Who reads what: a consumer's place in its group, by Kafka's group protocols or by Algorithm 1 on the tree."""
