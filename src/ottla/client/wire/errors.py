"""Errors between a client and a broker.

ClientError                  has `is_retriable`: the same call may succeed when repeated
  BrokerUnreachable          no broker accepted a connection
  ConnectionLost             a connection broke; its requests may or may not have been executed
  CallTimedOut               no answer within the caller's time; the last reason is the cause
  UnsupportedByBroker        the broker has no version of the API that we know
  AuthenticationFailed       the broker, or an identity provider, refused the login
  TokenUnavailable           an identity provider did not issue a token; a later attempt may succeed
  TlsFailed                  a certificate was refused, by this client or by the broker
  ListenerMismatch           the listener speaks another security protocol than the client
  BadAddress                 a bootstrap address that is not host:port
  UnknownBroker              no broker of the cluster has this node id
  UnknownTopic               the topic or the partition does not exist
  BrokerRefused              a broker answered with an error code
    OffsetOutOfRange         nothing can be read at that offset
  TopicRecreated             the topic of that id is gone: deleted, and another has its name
  FetchTooLarge              one batch is larger than the caller's limit
  ProducerStopped            an idempotent producer cannot continue without risking order or duplicates
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition, uuid_to_text


class ClientError(OttlaError):
    """A call to a broker failed."""

    is_retriable: bool = False


class BadAddress(ClientError):
    hint = "give addresses as host:port, several with commas between: localhost:9092,localhost:9093"


class BrokerUnreachable(ClientError):
    """No connection to a broker could be made, or it was lost."""

    is_retriable = True
    hint = (
        "is the broker running, and is the address right (--bootstrap-server, in Python bootstrap, "
        "in Spark kafka.bootstrap.servers)?"
    )


class ConnectionLost(ClientError):
    is_retriable = True
    hint = "the broker closed the connection or stopped; its log says why"


class CallTimedOut(ClientError):
    """A call was not done within its time; it may still take effect."""

    is_retriable = True
    hint = "the broker did not answer in time; its log may say why"


class UnsupportedByBroker(ClientError):
    hint = "the broker is too old or does not offer this; use Ottla or Apache Kafka 2.1 or newer"


class AuthenticationFailed(ClientError):
    """The broker refuses the login."""

    error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
    hint = "check sasl.username and sasl.password, and that the user has credentials for this mechanism"


class TokenUnavailable(ClientError):
    """There is no token for the login, as where its endpoint does not answer."""

    is_retriable = True
    hint = "is the identity provider running, and is the URL of its token endpoint right?"


class TlsFailed(ClientError):
    """The handshake of TLS failed: a certificate that is not trusted, another name, or one that is missing."""


class ListenerMismatch(ClientError):
    """The listener speaks another protocol than the client: one has TLS or a login, the other has none."""


class UnknownBroker(ClientError):
    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "use the node id of a broker of this cluster"


class UnknownTopic(ClientError):
    """The cluster does not have the topic, or the partition."""

    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    hint = "`ottla topic list` shows the topics, `ottla topic create` creates one"


class TopicRecreated(ClientError):
    """The topic was deleted, and there is another of its name; or this is another cluster."""

    error_code = ErrorCode.UNKNOWN_TOPIC_ID
    hint = "records of the deleted topic cannot be read any more; read the new one from its beginning"

    def __init__(self, partition: TopicPartition, expected: UUID, found: UUID) -> None:
        super().__init__(
            f"{partition}: the topic with the id {uuid_to_text(expected)} was deleted, "
            f"{partition.topic} has the id {uuid_to_text(found)} now"
        )
        self.partition = partition


class FetchTooLarge(ClientError):
    error_code = ErrorCode.MESSAGE_TOO_LARGE
    hint = "raise the limit of bytes per fetch"


class ProducerStopped(ClientError):
    hint = "open a new producer; batches without an acknowledgement may or may not have been stored"


class BrokerRefused(ClientError):
    """The broker's own error code, for `subject`: a topic, a partition or the request itself."""

    def __init__(self, code: ErrorCode, subject: str, detail: str | None = None, *, hint: str | None = None) -> None:
        reason = detail or f"the broker answered {code.name}"
        super().__init__(
            reason if _is_named(subject, reason) else f"{subject}: {reason}", hint=hint or _HINTS.get(code)
        )
        self.code = code
        self.subject = subject
        self.reason = reason

    @property
    def is_retriable(self) -> bool:  # type: ignore[override]
        return self.code.is_retriable


def _is_named(subject: str, reason: str) -> bool:
    """Whether the broker's reason names the subject: there is no topic 't'; The topic t currently exceeds ..."""
    name = re.escape(subject.rpartition(" ")[2])
    return re.search(rf"'{name}'|\b(?:topic|partition) {name}(?![\w-]|\.\w)", reason, re.IGNORECASE) is not None


class OffsetOutOfRange(BrokerRefused):
    """`offset` is below the log's start or above its end."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, str(partition), f"offset {offset} is not in the log")
        self.partition = partition
        self.offset = offset


def is_without_answer(error: ClientError) -> bool:
    """Whether a call has failed because no broker answered it in time, so that another one would fail as well."""
    return isinstance(error, BrokerUnreachable | CallTimedOut) and not isinstance(error.__cause__, BrokerRefused)


def error_code_of(number: int) -> ErrorCode:
    """An unknown code, as of a newer broker, becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode.of(number)


_HINTS: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the records were deleted or never existed; start at earliest or latest",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller batches, or raise max.message.bytes of the topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches, or raise the topic's segment.bytes",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic.hint,
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or pass --if-not-exists",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the factor is at least 1 and at most the number of brokers",
    ErrorCode.INVALID_PARTITIONS: "request at least one partition, and at most as many as the broker allows",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "topic names have 1 to 249 ASCII letters, digits, '.', '_' and '-'",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this in the version that both sides know",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync (min.insync.replicas); start the missing brokers",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker could not write or read its disk; its log says why",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "its broker is down or refused to open its log; `ottla topic describe` and the broker's log say more"
    ),
    ErrorCode.CORRUPT_MESSAGE: "the batch was damaged in transit",
    ErrorCode.INVALID_TIMESTAMP: "the record's timestamp is outside the topic's message.timestamp bounds",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker's log says what happened",
}
