"""`ottla.Producer`: sends messages to topics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, TypeAlias, TypeVar, overload

from ottla.client.groups.group_types import GroupOffsets, NamedOffsets, group_offsets_of
from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.producing.errors import MessageRefused, TransactionOutcomeUnknown
from ottla.client.producing.interceptors import ProducerInterceptors, SendArguments, arguments_of
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.producing.producer_api import ProducerApi
from ottla.client.producing.send_steps import SendStep, TransactionStep
from ottla.client.producing.serializing import HeadersLike, SerializedMessages, is_set
from ottla.client.producing.settings import KeyT, ValueT
from ottla.client.wire.errors import CallTimedOut, ClientError
from ottla.records.builder import RECORD_OVERHEAD_BYTES_MAX
from ottla.runtime.clock import wall_time_ns

Taken = TypeVar("Taken")
_NS_PER_MS: Final = 1_000_000

# A set of messages; a tuple with named fields is one message.
MessageSet: TypeAlias = (
    list[ValueT]
    | list[ValueT | None]
    | tuple[ValueT | None, ...]
    | deque[ValueT]
    | Set[ValueT]
    | Iterator[ValueT | None]
)


class Producer(ProducerApi[KeyT, ValueT]):
    """Sends messages, in batches, from a separate thread.  Any number of threads may use one producer.

    with ottla.Producer("localhost:9092", compression="zstd") as producer:
        producer.send("page-views", b"/jobs", key=b"ada")
        producer.send("page-views", [b"/jobs", b"/in/bob"])          # a set of messages

    `bootstrap`: "host:port,host:port" or a sequence of such; None: that of OTTLA_BOOTSTRAP_SERVERS, of a profile or of
    this directory, else localhost:9092 (`ottla.client.wire.destination.destination` has the rule), with the security
    settings of that place.  Settings (times in ms; Kafka's names and meanings, where Kafka has them):

    acks                   "all" in-sync replicas, 1 the leader, 0 no answer
    enable_idempotence     None: with acks "all"; every message is stored once and in order, retries included
    compression            none, gzip, snappy, lz4 or zstd, of each batch; `compression_level` None is the codec's own
    linger_ms              a batch that is not full is sent after this
    batch_bytes            a batch is full at this size before compression; one message may be larger
    batch_count_max        ... or at this count of messages
    buffer_bytes           of messages that are not acknowledged: `send` waits while there are more
    max_block_ms           so long `send` waits for that, or to learn a new topic's partitions
    delivery_timeout_ms    from a batch's sending to its end, all retries included
    request_timeout_ms     a request without an answer
    max_request_bytes      a larger message is refused
    max_in_flight          requests without an answer, for each broker
    key_serializer         a callable that makes bytes of a key; without one a key is bytes
    value_serializer       the same for a message
    partitioner            `(key as bytes, count of partitions) -> partition`; without one as Java's clients (murmur2)
    transactional_id       messages are sent in transactions; of producers with the same id only the newest may write
    transaction_timeout_ms a transaction that is open for longer is aborted by its coordinator
    security               TLS and SASL: a mapping of librdkafka's or Kafka's names, or a `ClientSecurity`
    interceptors           of `ottla.interceptors.ProducerInterceptor`: code that sees each `send`, and its end
    on_statistics          called with `metrics()` every `statistics_interval_ms`, on the producer's thread

    `ottla.client.producing.settings.ProducerSettings()` shows the defaults.  Raises ConfigError for a setting that
    cannot be used.
    """

    def __enter__(self) -> Producer[KeyT, ValueT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def send(  # type: ignore[overload-overlap]  # a value may be of any type; the rule is in `is_set`
        self,
        topic: str,
        messages: MessageSet[ValueT],
        *,
        key: KeyT | None = None,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        headers: HeadersLike | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery[list[Receipt]]: ...

    @overload
    def send(
        self,
        topic: str,
        messages: ValueT | None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        headers: HeadersLike | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery[Receipt]: ...

    def send(
        self,
        topic: str,
        messages: object,
        *,
        key: object = None,
        keys: Iterable[object] | None = None,
        partition: int | None = None,
        headers: HeadersLike | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery[Receipt] | Delivery[list[Receipt]]:
        """Take one message, or a set of them: a list, a tuple, an iterator.  Returns at once, but for back-pressure.

        delivery = producer.send("page-views", b"/jobs", key=b"ada", headers=[("trace", b"1")])
        delivery.wait().offset

        `None` is a message without a value, which deletes its key in a compacted topic.  A set has one `key`, or `keys`
        has one for each.  With a key the partition is the key's; without one it is a random one for each batch, and a
        set stays together; `partition` names it.  `timestamp_ms` is now, unless it is given.

        Nothing is taken with an error: MessageRefused, MessageTooLarge (what cannot be sent), UnknownTopic, BufferFull
        and CallTimedOut (after `max_block_ms`), ProducerClosed.  A message that was taken and fails later is
        reported by the delivery, or by `flush` and `close`.
        """
        if type(messages) is bytes and keys is None and headers is None and timestamp_ms is None and self._is_plain:
            # The short way: one message into a batch that has room.  Everything else takes the other.
            size_bytes = len(messages) + RECORD_OVERHEAD_BYTES_MAX
            if key is None and partition is None:
                stamp_ms = wall_time_ns() // _NS_PER_MS
                with self._monitor.lock:
                    batch = self._keyless.get(topic)
                    if batch is not None:
                        delivery = batch.append(messages, None, (), stamp_ms, size_bytes)
                        if delivery is not None:
                            return delivery
            elif key is None or type(key) is bytes:
                accumulator = self._core.accumulator
                count = accumulator.partitions_count(topic)
                if count is not None:
                    stamp_ms = wall_time_ns() // _NS_PER_MS
                    key_bytes = key or b""
                    number = partition_of_key(key_bytes, count) if partition is None else partition
                    with self._monitor.lock:
                        batch = accumulator.find(topic, number)
                        if batch is not None:
                            delivery = batch.append(messages, key, (), stamp_ms, size_bytes + len(key_bytes))
                            if delivery is not None:
                                return delivery
        arguments = (topic, messages, key, keys, partition, headers, timestamp_ms)
        if self._interceptors is None:
            return self._take(*arguments, as_set=is_set(messages))
        return self._intercept(self._interceptors, arguments)

    def _intercept(
        self, interceptors: ProducerInterceptors, arguments: SendArguments
    ) -> Delivery[Receipt] | Delivery[list[Receipt]]:
        outgoing = interceptors.on_send(*arguments)
        try:
            delivery = self._take(*arguments_of(outgoing), as_set=outgoing.is_set)
        except BaseException as error:
            interceptors.on_refused(outgoing, error)
            raise
        interceptors.watch(outgoing, delivery)
        return delivery

    def _take(
        self,
        topic: str,
        messages: object,
        key: object,
        keys: Iterable[object] | None,
        partition: int | None,
        headers: HeadersLike | None,
        timestamp_ms: int | None,
        *,
        as_set: bool,
    ) -> Delivery[Receipt] | Delivery[list[Receipt]]:
        until_s = time.monotonic() + self._core.settings.max_block_ms / 1000
        if as_set:
            assert isinstance(messages, Iterable)
            return self._send_set(
                self._serializer.messages(topic, messages, key, keys, partition, headers, timestamp_ms), until_s
            )
        if keys is not None:
            raise MessageRefused("keys are for a set of messages; one message has a key")
        return self._send_one(self._serializer.message(topic, messages, key, partition, headers, timestamp_ms), until_s)

    def init_transactions(self, timeout_ms: float | None = None) -> None:
        """Take the transactional id over, once, before the first transaction.

        Earlier producers with the id are fenced, and what they have left open is aborted.  Raises CallTimedOut after
        `timeout_ms` (`max_block_ms`), by which nothing is cancelled: called again, it waits on.
        """
        self._wait_for(self._core.init_step(), timeout_ms)

    def begin_transaction(self) -> None:
        """From now on messages are in a transaction.  Raises InvalidTransactionState, ProducerFenced."""
        self._core.begin_transaction()

    def commit_transaction(self, timeout_ms: float | None = None) -> None:
        """Send everything, wait until it is stored, and let readers of committed messages see all of it at once.

        Raises TransactionAbortable when something of it failed: then abort.  TransactionOutcomeUnknown after
        `timeout_ms` (`max_block_ms`): called again, it waits on for the same result.  Raises ProducerFenced.
        """
        self._wait_for(self._core.commit_step(), timeout_ms)

    def abort_transaction(self, timeout_ms: float | None = None) -> None:
        """End the transaction: readers of committed messages see nothing of it.  What was not sent yet is not sent.

        Raises TransactionOutcomeUnknown after `timeout_ms` (`max_block_ms`), ProducerFenced.
        """
        self._wait_for(self._core.abort_step(), timeout_ms)

    def send_offsets_to_transaction(
        self, offsets: GroupOffsets | NamedOffsets, *, group: str | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit a group's offsets with the transaction: `stream.group_offsets(message)` gives them.

        A program that assigns partitions itself names them: `({("page-views", 0): 17}, group="counter")`, the next
        offset of each.
        Returns when the group's coordinator has them.  Raises TransactionAbortable, also where the group has given
        partitions to other members meanwhile; CallTimedOut after `timeout_ms` (`max_block_ms`).
        """
        self._wait_for(self._core.offsets_step(group_offsets_of(offsets, group)), timeout_ms)

    @contextmanager
    def transaction(self) -> Iterator[Producer[KeyT, ValueT]]:
        """A block whose messages are one transaction: it commits at the end, and aborts with any exception.

        with producer.transaction():
            producer.send("page-views", b"/jobs", key=b"ada")

        A commit that fails is aborted, too, and raises TransactionAbortable.  A block may end its transaction itself.
        """
        self.begin_transaction()
        try:
            yield self
            if not self._core.has_ended_transaction:
                self.commit_transaction()
        except TransactionOutcomeUnknown:
            raise  # the caller asks again
        except BaseException:
            # What is raised is the reason; that the abort fails, too, as that of a fenced producer, adds nothing.
            with suppress(ClientError):
                self.abort_transaction()
            raise

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send everything now, and wait until each message taken so far is stored or has failed.

        Raises MessagesNotDelivered for those that failed and that no delivery has reported; CallTimedOut after
        `timeout_ms`, by which nothing is cancelled.
        """
        until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        for batch_delivery in self._core.begin_flush():
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if batch_delivery.wait(left_s) is None:
                raise CallTimedOut(f"not everything is acknowledged after {timeout_ms:g} ms", hint="it still may be")
        self._raise_failures()

    def close(self, timeout_ms: float | None = None) -> None:
        """`flush`, then the end: nothing is taken any more.  `with` does the same.

        After `timeout_ms` what is still under way fails, and is raised as MessagesNotDelivered.  It ends without a
        time, too, as every batch has its `delivery_timeout_ms`.
        """
        core = self._core
        core.finish()
        if not core.join(None if timeout_ms is None else timeout_ms / 1000):
            core.abandon(timeout_ms or 0)
        self._raise_failures()

    def _send_one(self, messages: SerializedMessages, until_s: float) -> Delivery[Receipt]:
        partition = messages.partition
        key = messages.keys[0]
        if partition is None and key is not None:
            count = self._wait(self._core.topic_step(messages), until_s)
            partition = self._serializer.partition(key, count)
        return self._wait(self._core.message_step(messages, partition), until_s)

    def _send_set(self, messages: SerializedMessages, until_s: float) -> Delivery[list[Receipt]]:
        count = self._wait(self._core.topic_step(messages), until_s) if messages.has_keys else None
        return self._wait(self._core.set_step(messages, self._serializer.runs(messages, count)), until_s)

    def _wait(self, step: SendStep[Taken], until_s: float) -> Taken:
        taken = self._result(step, until_s, self._core.settings.max_block_ms)
        with self._core.monitor.lock:
            self._core.yield_to_sender()
        return taken

    def _wait_for(self, step: TransactionStep, timeout_ms: float | None) -> None:
        waited_ms = self._core.settings.max_block_ms if timeout_ms is None else timeout_ms
        self._result(step, time.monotonic() + waited_ms / 1000, waited_ms)

    def _result(self, step: SendStep[Taken], until_s: float, waited_ms: float) -> Taken:
        monitor = self._core.monitor
        with monitor.lock:
            while (taken := step.attempt()) is None:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise step.too_late(waited_ms)
                monitor.wait(left_s)
            return taken
