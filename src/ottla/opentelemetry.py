"""Traces of producers and consumers by OpenTelemetry: `pip install 'ottla[opentelemetry]'`.

    producer = ottla.Producer("localhost:9092", interceptors=[ProducerTracing()])
    tracing = ConsumerTracing(group="mailer")
    consumer = ottla.Consumer("localhost:9092", group="mailer", interceptors=[tracing])
    for message in consumer:
        with tracing.process(message):
            ...

The names of spans and attributes are OpenTelemetry's for messaging; the context of a trace is in the headers of the
messages, as the program's propagators write it (W3C's `traceparent`).  docs/clients.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ottla.runtime.installed import naming_what_to_install

with naming_what_to_install():
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.util.types import AttributeValue

from ottla.client.fetching.messages import Message
from ottla.client.producing.delivery import Receipt
from ottla.client.producing.errors import MessageNotDelivered, MessageRefused
from ottla.client.producing.interceptor import OutgoingMessages, ProducerInterceptor
from ottla.client.streams.interceptors import ConsumerInterceptor
from ottla.client.wire.errors import BrokerRefused
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET
from ottla.model.version import __version__
from ottla.records.record import Headers

__all__ = ["ConsumerTracing", "ProducerTracing"]

_SYSTEM: Final = "kafka"


def _attributes(operation: str, kind: str, topic: str | None, messages_count: int | None) -> dict[str, AttributeValue]:
    """`messages_count` of a batch; None: it is one message."""
    found: dict[str, AttributeValue] = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if topic is not None:
        found["messaging.destination.name"] = topic
    if messages_count is not None:
        found["messaging.batch.message_count"] = messages_count
    return found


class ProducerTracing(ProducerInterceptor):
    """A span "send TOPIC" of each `send`, from its call until all of it is stored or has failed.  A set of messages has
    one span, whose context is in the headers of all.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("ottla", __version__, tracer_provider)

    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        count = len(messages.values) if messages.is_set else None
        span = self._tracer.start_span(
            f"send {messages.topic}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("send", "send", messages.topic, count),
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        messages.notes[self] = span
        # Forwarded headers have the state of another trace, which must not remain beside the context of this one.
        stale = carrier.keys() | propagate.get_global_textmap().fields if carrier else set()
        kept = (header for header in messages.headers if header[0] not in stale)
        return replace(messages, headers=(*kept, *((name, text.encode()) for name, text in carrier.items())))

    def on_acknowledgement(
        self, messages: OutgoingMessages, receipts: Sequence[Receipt], error: OttlaError | None
    ) -> None:
        span = messages.notes.pop(self, None)
        if not isinstance(span, Span):
            return
        partitions = {receipt.partition for receipt in receipts}
        if len(partitions) == 1:
            span.set_attribute("messaging.destination.partition.id", str(partitions.pop()))
        if not messages.is_set and receipts and receipts[0].offset != NO_OFFSET:
            span.set_attribute("messaging.kafka.offset", receipts[0].offset)
        if error is not None:
            span.set_attribute("error.type", _error_type(error))
            # A refusal quotes the value, key, header or timestamp that cannot be sent.
            description = _error_type(error) if isinstance(error, MessageRefused) else str(error)
            span.set_status(StatusCode.ERROR, description)
        span.end()


def _error_type(error: OttlaError) -> str:
    reason = error.reason if isinstance(error, MessageNotDelivered) else error
    return reason.code.name if isinstance(reason, BrokerRefused) else type(reason).__name__


class ConsumerTracing(ConsumerInterceptor):
    """A span "poll TOPIC" of each batch of messages that is returned, with a link to the span that sent each; and
    `process`, the span of the program's work for one message.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, group: str | None = None) -> None:
        self._tracer = trace.get_tracer("ottla", __version__, tracer_provider)
        self._of_group: Mapping[str, AttributeValue] = {} if group is None else {"messaging.consumer.group.name": group}

    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        topics = {message.topic for message in messages}
        topic = topics.pop() if len(topics) == 1 else None
        sent_by = (trace.get_current_span(_context_of(message.headers)).get_span_context() for message in messages)
        span = self._tracer.start_span(
            "poll" if topic is None else f"poll {topic}",
            kind=SpanKind.CLIENT,
            attributes={**_attributes("poll", "receive", topic, len(messages)), **self._of_group},
            links=[Link(context) for context in sent_by if context.is_valid],
        )
        span.end()
        return messages

    @contextmanager
    def process(self, message: Message[Any, Any]) -> Iterator[Span]:
        """The span "process TOPIC" around the work for it, of the trace that it was sent in.  An exception is
        recorded, and raised.
        """
        attributes: dict[str, AttributeValue] = {
            **_attributes("process", "process", message.topic, None),
            **self._of_group,
            "messaging.destination.partition.id": str(message.partition),
            "messaging.kafka.offset": message.offset,
        }
        if message.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=_context_of(message.headers),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ) as span:
            yield span


def _context_of(headers: Headers) -> Context:
    """That in which the message was sent, where its headers have one; else the empty one."""
    carrier = {name: content.decode("utf-8", "replace") for name, content in headers if content is not None}
    return propagate.extract(carrier, Context())
