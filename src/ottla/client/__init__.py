"""One client core for the command line, Spark and the tests: blocking, without threads.

Cluster             connections, metadata, leaders                     client.cluster
fetch_raw, Fetcher  whole batches, once or continuously                   client.fetch, client.fetcher
RawProducer         whole batches to their leaders, idempotent         client.producer
RecordProducer      single records into batches                        client.record_producer
Message             a record with its place, from runs of records      client.messages
list_offsets        log starts and ends, offsets of times              client.offsets
Admin               topics, settings, records to delete, the cluster   client.admin
"""
