"""The paper's consumer: streams of messages, many partitions each; and one partition read by its offsets.

ConsumerConnector, MessageStream   streams of a group             client.streams.connector
SimpleConsumer                     one partition, by offsets      client.streams.simple_consumer
dedup                              what was seen is left out      client.streams.dedup
"""
