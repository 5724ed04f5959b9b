"""The paper's consumer: streams of messages, many partitions each; and one partition read by its offsets.

ConsumerConnector, MessageStream   streams of a group               ottla.client.streams.connector
the same for asyncio               on the same engine               ottla.client.streams.aio_connector
SimpleConsumer                     one partition, by offsets        ottla.client.streams.simple_consumer
dedup, Dedup                       what the store has is left out   ottla.client.streams.dedup
"""
