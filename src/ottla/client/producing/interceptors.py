"""A producer's interceptors, one after the other: before messages are taken, and when they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.producing.errors import MessageRefused
from ottla.client.producing.interceptor import OutgoingMessages, ProducerInterceptor
from ottla.client.producing.serializing import HeadersLike, is_set, to_headers
from ottla.client.wire.client_log import PRODUCER
from ottla.model.errors import OttlaError


class ProducerInterceptors:
    """Each gets what the one before it made."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = interceptors

    def on_send(
        self,
        topic: str,
        messages: object,
        key: object,
        keys: Iterable[object] | None,
        partition: int | None,
        headers: HeadersLike | None,
        timestamp_ms: int | None,
    ) -> OutgoingMessages:
        """Raises MessageRefused for what contradicts itself, and headers that cannot be sent."""
        made = to_headers(headers)
        if keys is not None and (key is not None or not is_set(messages)):
            raise MessageRefused("keys are for a set of messages, in place of one key for all")
        if is_set(messages):
            assert isinstance(messages, Iterable)
            values = list(messages)
            every = [key] * len(values) if keys is None else list(keys)
            outgoing = OutgoingMessages(topic, values, every, partition, made, timestamp_ms, is_set=True)
        else:
            outgoing = OutgoingMessages(topic, [messages], [key], partition, made, timestamp_ms, is_set=False)
        for each in self._interceptors:
            outgoing = _intercepted(each, outgoing)
        return outgoing

    def watch(self, outgoing: OutgoingMessages, delivery: Delivery[Receipt] | Delivery[list[Receipt]]) -> None:
        """Their failure does not count as reported by that."""
        delivery.when_done(lambda: self._acknowledge(outgoing, *delivery.settled()))

    def on_refused(self, outgoing: OutgoingMessages, error: BaseException) -> None:
        """`send` ends with `error`: the refusal of the messages, or what interrupted it."""
        if not isinstance(error, OttlaError):
            error = OttlaError(f"send was interrupted: {type(error).__name__}")
        self._acknowledge(outgoing, (), error)

    def _acknowledge(self, outgoing: OutgoingMessages, receipts: Sequence[Receipt], error: OttlaError | None) -> None:
        for each in self._interceptors:
            try:
                each.on_acknowledgement(outgoing, receipts, error)
            except Exception:  # noqa: BLE001 (it is logged)
                PRODUCER.exception("the interceptor %s has failed", type(each).__name__)


# As of `send`: topic, messages, key, keys, partition, headers, timestamp_ms.
SendArguments: TypeAlias = tuple[
    str, object, object, Iterable[object] | None, int | None, HeadersLike | None, int | None
]


def arguments_of(outgoing: OutgoingMessages) -> SendArguments:
    """What to send in place of what `send` was called with."""
    last = (outgoing.partition, outgoing.headers, outgoing.timestamp_ms)
    if outgoing.is_set:
        return (outgoing.topic, list(outgoing.values), None, outgoing.keys, *last)
    return (outgoing.topic, outgoing.values[0], outgoing.keys[0], None, *last)


def _intercepted(interceptor: ProducerInterceptor, outgoing: OutgoingMessages) -> OutgoingMessages:
    try:
        made = interceptor.on_send(outgoing)
        if not isinstance(made, OutgoingMessages):
            raise TypeError(f"on_send returned {type(made).__name__}, not OutgoingMessages")
        if (len(made.values), len(made.keys)) != (len(outgoing.values), len(outgoing.keys)):
            counts = f"{len(made.values)} values and {len(made.keys)} keys"
            raise ValueError(f"on_send returned {counts}, for {len(outgoing.values)} messages")
        if made.notes is not outgoing.notes:
            # It made the messages without `replace`: the notes of those before it must reach their acknowledgement.
            outgoing.notes.update(made.notes)
            made = replace(made, notes=outgoing.notes)
    except Exception:  # noqa: BLE001 (it is logged)
        PRODUCER.exception("the interceptor %s has failed", type(interceptor).__name__)
        return outgoing
    return made
