"""Spans of producers and consumers, in OpenTelemetry's exporter in memory."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ottla.client.fetching.messages import Message
from ottla.client.producing.delivery import Receipt
from ottla.client.producing.errors import MessageNotDelivered, MessageRefused
from ottla.client.producing.interceptors import ProducerInterceptors
from ottla.client.producing.serializing import MessageSerializer
from ottla.client.producing.settings import ProducerSettings
from ottla.client.wire.errors import BrokerRefused, BrokerUnreachable
from ottla.interceptors import OutgoingMessages
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.opentelemetry import ConsumerTracing, ProducerTracing

CLICKS = TopicPartition("clicks", 3)


class Tracing:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.producer = ProducerTracing(self.provider)
        self.consumer = ConsumerTracing(self.provider, group="mailer")

    def send(self, messages: object, headers: list[tuple[str, bytes | None]] | None = None) -> OutgoingMessages:
        interceptors = ProducerInterceptors([self.producer])
        return interceptors.on_send("clicks", messages, None, None, None, headers, None)

    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def received(outgoing: OutgoingMessages, value: bytes | None = b"x") -> Message[Any, Any]:
    return Message("clicks", 3, 7, 1_000, None, value, outgoing.headers)


def test_a_send_is_a_span_until_it_is_acknowledged() -> None:
    tracing = Tracing()
    outgoing = tracing.send(b"x")
    assert tracing.spans() == []
    tracing.producer.on_acknowledgement(outgoing, [Receipt("clicks", 3, 7, 1_000)], None)
    [span] = tracing.spans()
    assert (span.name, span.kind) == ("send clicks", SpanKind.PRODUCER)
    assert attributes(span) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "clicks",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 7,
    }


def test_the_header_has_the_context_of_the_span_in_place_of_an_older_one() -> None:
    tracing = Tracing()
    outgoing = tracing.send(b"x", [("traceparent", b"old"), ("kept", b"1")])
    tracing.producer.on_acknowledgement(outgoing, [], None)
    [span] = tracing.spans()
    assert span.context is not None
    parent = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
    assert outgoing.headers == (("kept", b"1"), ("traceparent", parent.encode()))


def test_forwarded_headers_keep_no_state_of_another_trace() -> None:
    tracing = Tracing()
    old: dict[str, bytes | None] = {
        "traceparent": b"old",
        "tracestate": b"vendor=old",
        "baggage": b"user=old",
        "kept": b"1",
    }
    outgoing = tracing.send(b"x", list(old.items()))
    assert [name for name, _ in outgoing.headers] == ["kept", "traceparent"]


def test_forwarded_headers_stay_where_no_span_is_recorded() -> None:
    tracing = Tracing()
    tracing.producer = ProducerTracing(trace.NoOpTracerProvider())
    old: list[tuple[str, bytes | None]] = [("traceparent", b"old"), ("tracestate", b"vendor=old")]
    assert tracing.send(b"x", old).headers == tuple(old)


def test_a_set_is_one_span_with_the_count_of_its_messages() -> None:
    tracing = Tracing()
    outgoing = tracing.send([b"x", b"y"])
    receipts = [Receipt("clicks", number, 0, 1_000) for number in range(2)]
    tracing.producer.on_acknowledgement(outgoing, receipts, None)
    [span] = tracing.spans()
    assert attributes(span)["messaging.batch.message_count"] == 2
    assert not attributes(span).keys() & {"messaging.destination.partition.id", "messaging.kafka.offset"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            MessageNotDelivered(CLICKS, BrokerRefused(ErrorCode.NOT_ENOUGH_REPLICAS, "clicks-3"), may_be_stored=False),
            "NOT_ENOUGH_REPLICAS",
        ),
        (BrokerUnreachable("no broker"), "BrokerUnreachable"),
    ],
)
def test_a_failure_is_the_status_of_the_span(error: OttlaError, kind: str) -> None:
    tracing = Tracing()
    tracing.producer.on_acknowledgement(tracing.send(b"x"), [], error)
    [span] = tracing.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == kind


def test_a_value_that_cannot_be_serialized_is_on_no_span() -> None:
    def refuse(_value: object) -> bytes:
        raise ValueError("no such card")

    serializer = MessageSerializer(ProducerSettings(value_serializer=refuse), lambda: 1_000, lambda numbers: numbers[0])
    with pytest.raises(MessageRefused, match="4929-secret") as refused:
        serializer.message("clicks", {"card": "4929-secret"}, None, None, None, None)
    tracing = Tracing()
    tracing.producer.on_acknowledgement(tracing.send(b"x"), [], refused.value)
    [span] = tracing.spans()
    assert "4929-secret" not in span.to_json()
    assert span.status.description == attributes(span)["error.type"] == "MessageRefused"


def test_the_span_of_a_send_is_in_the_trace_of_its_caller() -> None:
    tracing = Tracing()
    with tracing.provider.get_tracer("of the program").start_as_current_span("request") as request:
        outgoing = tracing.send(b"x")
    tracing.producer.on_acknowledgement(outgoing, [], None)
    sent = tracing.spans()[-1]
    assert sent.parent is not None
    assert sent.parent.span_id == request.get_span_context().span_id


def test_a_batch_that_is_returned_has_a_link_to_each_send() -> None:
    tracing = Tracing()
    sends = [tracing.send(b"x"), tracing.send(b"y")]
    for outgoing in sends:
        tracing.producer.on_acknowledgement(outgoing, [], None)
    untraced = Message("clicks", 3, 9, 1_000, None, b"z", (("traceparent", b"\xff"),))
    messages: list[Message[Any, Any]] = [*map(received, sends), untraced]
    assert tracing.consumer.on_consume(messages) == messages
    *sent, polled = tracing.spans()
    assert (polled.name, polled.kind) == ("poll clicks", SpanKind.CLIENT)
    assert [link.context.span_id for link in polled.links] == [span.context.span_id for span in sent if span.context]
    assert attributes(polled)["messaging.batch.message_count"] == 3
    assert attributes(polled)["messaging.consumer.group.name"] == "mailer"


def test_a_batch_of_several_topics_names_none() -> None:
    tracing = Tracing()
    tracing.consumer.on_consume([Message(topic, 0, 0, 1_000, None, b"x") for topic in ("a", "b")])
    [polled] = tracing.spans()
    assert polled.name == "poll"
    assert "messaging.destination.name" not in attributes(polled)


def test_the_work_for_a_message_is_in_the_trace_that_sent_it() -> None:
    tracing = Tracing()
    outgoing = tracing.send(None)
    tracing.producer.on_acknowledgement(outgoing, [], None)
    with tracing.consumer.process(received(outgoing, value=None)) as span:
        assert trace.get_current_span() is span
    sent, worked = tracing.spans()
    assert (worked.name, worked.kind) == ("process clicks", SpanKind.CONSUMER)
    assert worked.parent is not None
    assert sent.context is not None
    assert (worked.parent.trace_id, worked.parent.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert attributes(worked)["messaging.kafka.offset"] == 7
    assert attributes(worked)["messaging.kafka.message.tombstone"] is True


def test_a_message_without_a_context_starts_a_trace_of_its_work() -> None:
    tracing = Tracing()
    with tracing.consumer.process(Message("clicks", 3, 7, 1_000, None, b"x")):
        pass
    [worked] = tracing.spans()
    assert worked.parent is None


def test_work_that_fails_is_recorded_and_raised() -> None:
    tracing = Tracing()
    with pytest.raises(ValueError, match="of the program"), tracing.consumer.process(received(tracing.send(b"x"))):
        raise ValueError("of the program")
    [worked] = tracing.spans()
    assert worked.status.status_code is StatusCode.ERROR
