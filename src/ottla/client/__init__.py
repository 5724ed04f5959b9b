"""One client core for the command line, Spark and the tests: blocking, without threads where none is named.

Cluster             connections, metadata, leaders                     client.wire.cluster
fetch_raw, Fetcher  whole batches, once or continuously                client.fetching
RawProducer         whole batches to their leaders, idempotent         client.producing.raw_producer
RecordProducer      single records into batches                        client.producing.record_producer
Producer            messages from any thread, sent by one thread       client.producing.producer
ConsumerConnector   streams of messages, fetched by one thread         client.streams.connector
Message             a record with its place, from runs of records      client.fetching.messages
list_offsets        log starts and ends, offsets of times              client.fetching.offsets
TopicLog            a topic as the log of a program                    client.topic_log
Admin               topics, settings, records to delete, the cluster   client.admin.admin
"""
