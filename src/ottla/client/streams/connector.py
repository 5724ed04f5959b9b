"""The consumer of a group: topics as streams of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from typing_extensions import Unpack

from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.streams.connector_core import CLOSE_TIMEOUT_MS, ConnectorApi
from ottla.client.streams.message_stream import COMMIT_TIMEOUT_MS, MessageStream
from ottla.client.streams.settings import ConnectorArguments, KeyT, ValueT
from ottla.client.streams.stream_buffer import StreamBuffer


class ConsumerConnector(ConnectorApi[KeyT, ValueT]):
    """Reads topics as one of a group's consumers: each message of a topic goes to one stream of the group.

        with ConsumerConnector("localhost:9092", group="jobs") as connector:
            streams = connector.create_message_streams({"page-views": 2})
            for message in streams["page-views"][0]:
                print(message.partition, message.offset, message.value)

    Consumers of one group share the partitions; each group gets everything.  With `bootstrap` the brokers coordinate
    the group, Ottla's or Apache Kafka's; with `zookeeper` ("localhost:2181/ottla") the consumers do so alone, and find
    the brokers there.  Without both the brokers are chosen as for `ottla.Producer`.

    At least once: an offset is committed when its message was handed out and the next one was asked for.

    auto_offset_reset         where a group begins that has committed nothing, or whose offset is not in the log any
                              more: "latest", "earliest", or "error", which the stream raises
    enable_auto_commit        commit what was passed every `auto_commit_interval_ms`, and when partitions are given
                              back; without it only `commit` does
    consumer_timeout_ms       a stream ends when no message comes for so long; None: it waits
    key_deserializer,         called with the bytes of a key or a value; a null stays None.  An error of theirs is
    value_deserializer        raised as a PoisonMessage
    stream_buffer_bytes       so much is fetched ahead for each stream, as it is stored
    isolation_level           "read_uncommitted": messages as they are stored; "read_committed": those of transactions
                              when they are committed, and none of aborted ones
    max_partition_fetch_bytes, fetch_max_bytes, fetch_min_bytes, fetch_max_wait_ms, check_crcs, metadata_max_age_ms,
    request_timeout_ms, client_id   as in Kafka
    release_wait_ms           a partition that goes to another consumer waits so long for the message in hand
    session_timeout_ms        a consumer that is not heard of for so long is dead to the group; None: 45,000 with
                              brokers (those with KIP-848 have their own setting), 6,000 with ZooKeeper
    connection_timeout_ms     when no broker can be reached for so long at first, the streams raise that; once there was
                              contact, it is tried again for ever
    group_protocol            "auto", "consumer" (KIP-848) or "classic"; of brokers only
    zookeeper_digest          "user:password", where the cluster's nodes in ZooKeeper belong to a user
    zookeeper_security        TLS and the user of the connection to ZooKeeper: a mapping of the brokers' names, such as
                              zookeeper.ssl.client.enable, zookeeper.ssl.truststore.location, zookeeper.digest.file
    security                  TLS and SASL of the connections to brokers: a mapping of librdkafka's or Kafka's names, or
                              a `ClientSecurity`
    on_statistics             called with `metrics()` every `statistics_interval_ms`, on a thread of the connector

    `ottla.client.streams.settings.StreamSettings()` shows the defaults.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        zookeeper: str | None = None,
        group: str,
        **settings: Unpack[ConnectorArguments[KeyT, ValueT]],
    ) -> None:
        super().__init__(bootstrap, zookeeper=zookeeper, group=group, **settings)

    def __enter__(self) -> ConsumerConnector[KeyT, ValueT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream[KeyT, ValueT]]]:
        """Join the group, and read each topic by so many streams, which share its partitions here.

        Each stream is for one thread.  A topic that does not exist yet is read from the time on when it does.  Once for
        each connector.
        """
        buffers = self._core.open(Subscription.by_name(topics))
        return {topic: [self._stream(buffer, [topic]) for buffer in each] for topic, each in buffers.items()}

    def create_message_streams_by_filter(
        self, streams_count: int = 1, *, allow: str, deny: str | None = None
    ) -> list[MessageStream[KeyT, ValueT]]:
        """Join the group, and read all topics by so many streams whose whole names match `allow` and do not match
        `deny`: patterns of Python's `re`.  Topics that are made later join.  Once for each connector.
        """
        subscription = Subscription({}, TopicFilter(allow, deny), streams_count)
        buffers = self._core.open(subscription)
        return [self._stream(buffer, None) for each in buffers.values() for buffer in each]

    def commit(self, *, wait: bool = True, timeout_ms: int | None = COMMIT_TIMEOUT_MS) -> None:
        """`MessageStream.commit` for all streams."""
        engine = self._core.opened()
        outcome = engine.commit(self._core.buffers)
        if wait:
            engine.wait_for(outcome, timeout_ms)

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group: what was passed is committed, the streams end, in all threads.

        It waits up to `release_wait_ms` for messages that other threads have in hand, and up to `timeout_ms` for the
        group.  `with` does the same.
        """
        self._core.close(timeout_ms, threading.get_ident())

    def _stream(self, buffer: StreamBuffer, topics: Iterable[str] | None) -> MessageStream[KeyT, ValueT]:
        return MessageStream(self._core.opened(), buffer, topics, self._core.settings.consumer_timeout_ms, self._hold)
