"""Sets messages aside, for plain consumers: a letter is stored before the consumer continues."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from ottla.client.fetching.messages import Message
from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.producing.producer import Producer
from ottla.client.streams.errors import PoisonMessage
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.client.wire.metadata import TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.dead_letters.letter import DeadLetter, Origin, error_class_of
from ottla.dead_letters.topics import dead_letter_topic, ensure_topic, message_at
from ottla.model.errors import WireError
from ottla.model.identifiers import NO_TIMESTAMP, TopicPartition
from ottla.model.limits import MIB
from ottla.records.record import Headers

CLIENT_ID: Final = "ottla-dead-letters"
# The topic decides what is too large: its letters are as large as what its producers were allowed to send.
LETTER_BYTES_MAX: Final = 128 * MIB

# Of each topic: itself, and its dead-letter topic.
_Found: TypeAlias = dict[str, tuple[TopicInfo, TopicInfo]]


class DeadLetters:
    """Writes dead letters to `<topic>.dead-letter`, or to `topic` for all; any number of threads may use one.

        with DeadLetters("localhost:9092") as dead_letters:
            for message in stream:
                with dead_letters.guard(message):
                    handle(message)

    When `put`, `put_all` or the end of `guard` returns, the letters are stored by all in-sync replicas; so a consumer
    that commits afterwards loses nothing.  A message that is consumed again, since its offset was not committed, and
    fails again is a letter again: both name the same origin, and `ottla dead-letter replay` puts it back once.

    topic       one dead-letter topic for everything; it is made when it is not there, see `dead_letter_topic`
    stage       what is done with the messages, as a word in the letters
    security    TLS and SASL, as of `ottla.Producer`
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        topic: str | None = None,
        stage: str = "CONSUME",
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        self._bootstrap: Final = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        self._topic: Final = topic
        self._stage: Final = stage
        # Blocking and of one thread at a time; the producer has a lock of its own.
        self._lock: Final = threading.Lock()
        given = given_security(security)
        self._cluster: Final = Cluster(self._bootstrap, ClientOptions(CLIENT_ID, security=given))
        # What was found out of each topic that had a letter: its id, and its dead-letter topic.
        self._known: Final[_Found] = {}
        self._producer: Final[Producer] = Producer(
            self._bootstrap,
            client_id=CLIENT_ID,
            max_request_bytes=LETTER_BYTES_MAX,
            allow_auto_create_topics=False,
            security=given,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<DeadLetters to {self._bootstrap}>"

    def put(self, message: Any, error: BaseException | str, *, stage: str | None = None) -> Receipt:
        """Set a message aside; it is stored when this returns.  Gives the letter's topic, partition and offset.

        `message` is one of ottla, confluent-kafka, kafka-python or aiokafka, with the bytes that were read; or the
        `PoisonMessage` that a stream has raised, whose bytes are read again.
        Raises what `Delivery.wait` raises (then the consumer shall not commit), and `TypeError` for what is no message.
        """
        return self._send(message, error, stage, {}).wait()

    def put_all(
        self, failures: Iterable[tuple[Any, BaseException | str]], *, stage: str | None = None
    ) -> list[Receipt]:
        """`put` for each message and its error, with one wait for all."""
        now: _Found = {}
        deliveries = [self._send(message, error, stage, now) for message, error in failures]
        return [delivery.wait() for delivery in deliveries]

    @contextmanager
    def guard(
        self,
        message: Any,
        *,
        catch: type[Exception] | tuple[type[Exception], ...] = Exception,
        stage: str | None = None,
    ) -> Iterator[None]:
        """A block that handles one message: what it raises is the letter's error, and ends there.

        `catch`: the errors that are the message's fault; others propagate, as do Ctrl-C and the end of the process.
        """
        try:
            yield
        except catch as error:
            self.put(message, error, stage=stage)

    def close(self) -> None:
        """Close the connections.  Nothing is lost: `put` has waited."""
        try:
            self._producer.close()
        finally:
            with self._lock:
                self._cluster.close()

    def _send(self, message: Any, error: BaseException | str, stage: str | None, now: _Found) -> Delivery[Receipt]:
        """`now` has what this call has looked up."""
        found = self._read_again(message) if isinstance(message, PoisonMessage) else received(message)
        letter, target = self._letter(found, error, stage or self._stage, now)
        return self._producer.send(
            target.name,
            letter.value,
            key=letter.key,
            # Letters of one partition stay in order, and those of one record together.
            partition=found.partition % len(target.partitions),
            headers=letter.record_headers,
        )

    def _letter(
        self, message: Message, error: BaseException | str, stage: str, now: _Found
    ) -> tuple[DeadLetter, TopicInfo]:
        with self._lock:
            if message.topic not in now:
                now[message.topic] = self._looked_up(message.topic)
            source, target = now[message.topic]
            origin = Origin(
                self._cluster.info.cluster_id or "",
                message.topic,
                source.topic_id,
                message.partition,
                message.offset,
                message.timestamp_ms,
            )
        error_class = "" if isinstance(error, str) else error_class_of(error)
        letter = DeadLetter(origin, message.key, message.value, message.headers, error_class, str(error), stage)
        return letter, target

    def _looked_up(self, topic: str) -> tuple[TopicInfo, TopicInfo]:
        """Looked up for each call: a topic that was recreated has another id.

        With the former's, a letter would be taken for that of the former's record at this offset, and not put back.
        """
        known = self._known.get(topic)
        self._cluster.forget([topic])
        try:
            source = self._cluster.topic(topic)
        except UnknownTopic:
            if known is None:
                raise
            # Deleted since: the message is of the topic that was there.
            return known
        if known is None or known[0].topic_id != source.topic_id:
            name = dead_letter_topic(topic, self._topic)
            known = self._known[topic] = (source, ensure_topic(self._cluster, name, source))
        return known

    def _read_again(self, poison: PoisonMessage) -> Message:
        """Raises the error itself when it is damage of the log: there are no bytes of one message then."""
        if isinstance(poison.cause, WireError):
            raise poison
        with self._lock:
            found = message_at(self._cluster, TopicPartition(poison.topic, poison.partition), poison.offset)
        if found is None:
            raise poison
        return found


def received(message: Any) -> Message:
    """A message of ottla, of confluent-kafka, or a record of kafka-python or aiokafka.

    Raises `TypeError` for anything else, and where key or value are not the bytes that were read.
    """
    if isinstance(message, Message):
        found = Message(*message)
    elif callable(getattr(message, "topic", None)) and callable(getattr(message, "offset", None)):
        found = _of_confluent(message)
    elif isinstance(getattr(message, "topic", None), str) and hasattr(message, "offset"):
        stamp = message.timestamp
        found = Message(
            message.topic,
            message.partition,
            message.offset,
            NO_TIMESTAMP if stamp is None else stamp,
            message.key,
            message.value,
            _headers(message.headers),
        )
    else:
        raise TypeError(
            f"a dead letter is made of a message of ottla, confluent-kafka, kafka-python or aiokafka, "
            f"not of {type(message).__name__}"
        )
    for name, content in (("key", found.key), ("value", found.value)):
        if content is not None and not isinstance(content, bytes):
            raise TypeError(
                f"the {name} of {found.topic}-{found.partition}, offset {found.offset}, is {type(content).__name__}: "
                "a dead letter keeps the bytes that were read, so deserialize after the consumer"
            )
    return found


def _of_confluent(message: Any) -> Message:
    if message.error() is not None:
        raise TypeError(f"this is no message but an error of the consumer: {message.error()}")
    _, stamp_ms = message.timestamp()
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        stamp_ms,
        message.key(),
        message.value(),
        _headers(message.headers()),
    )


def _headers(pairs: Iterable[tuple[str, bytes | None]] | None) -> Headers:
    return tuple((name, content) for name, content in pairs or ())
