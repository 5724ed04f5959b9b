"""The errors that users of the client meet; each is an `OttlaError`, with a `hint` where something can be done.

Producer       BufferFull, MessageTooLarge, MessageRefused, MessageNotDelivered, MessagesNotDelivered, ProducerClosed
Transactions   ProducerFenced, TransactionAbortable, TransactionAborted, TransactionOutcomeUnknown,
               InvalidTransactionState
Consumer       PoisonMessage, NoPosition, NotAssigned, CommitFailed, RebalanceInProgress, ConsumerClosed,
               ConsumerBusy
Both           ConfigError, UnknownTopic, BrokerUnreachable, BrokerRefused, CallTimedOut, OffsetOutOfRange
Security       AuthenticationFailed, ListenerMismatch, TlsFailed, TokenUnavailable
"""

from __future__ import annotations

from ottla.client.producing.errors import (
    BufferFull,
    InvalidTransactionState,
    MessageNotDelivered,
    MessageRefused,
    MessagesNotDelivered,
    MessageTooLarge,
    ProducerClosed,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    TransactionOutcomeUnknown,
)
from ottla.client.streams.errors import (
    CommitFailed,
    ConsumerBusy,
    ConsumerClosed,
    NoPosition,
    NotAssigned,
    PoisonMessage,
    RebalanceInProgress,
)
from ottla.client.wire.errors import (
    AuthenticationFailed,
    BrokerRefused,
    BrokerUnreachable,
    CallTimedOut,
    ListenerMismatch,
    OffsetOutOfRange,
    TlsFailed,
    TokenUnavailable,
    UnknownTopic,
)
from ottla.model.errors import ConfigError, OttlaError

__all__ = [
    "AuthenticationFailed",
    "BrokerRefused",
    "BrokerUnreachable",
    "BufferFull",
    "CallTimedOut",
    "CommitFailed",
    "ConfigError",
    "ConsumerBusy",
    "ConsumerClosed",
    "InvalidTransactionState",
    "ListenerMismatch",
    "MessageNotDelivered",
    "MessageRefused",
    "MessageTooLarge",
    "MessagesNotDelivered",
    "NoPosition",
    "NotAssigned",
    "OffsetOutOfRange",
    "OttlaError",
    "PoisonMessage",
    "ProducerClosed",
    "ProducerFenced",
    "RebalanceInProgress",
    "TlsFailed",
    "TokenUnavailable",
    "TransactionAbortable",
    "TransactionAborted",
    "TransactionOutcomeUnknown",
    "UnknownTopic",
]
