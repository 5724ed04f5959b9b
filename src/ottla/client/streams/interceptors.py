"""What a user's code sees of each batch of messages that a consumer returns, and of its commits (KIP-42)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.fetching.messages import Message
from ottla.client.wire.client_log import CONSUMER
from ottla.model.identifiers import TopicPartition


class ConsumerInterceptor:
    """Override what is needed.  Both methods must return soon; what they raise is logged, and changes nothing."""

    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        """Before they are returned: those of `poll_many`, or the one of `poll` or of an iteration.

        Gives as many, in their order: the messages to return.
        """
        return messages

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these offsets now, each the next to read.  On the thread of the group's member."""


class ConsumerInterceptors:
    """Each gets what the one before it made."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = interceptors

    def on_message(self, message: Message[Any, Any]) -> Message[Any, Any]:
        return self.on_consume([message])[0]

    def on_consume(self, messages: list[Message[Any, Any]]) -> list[Message[Any, Any]]:
        if not messages:
            return messages
        for each in self._interceptors:
            messages = _intercepted(each, messages)
        return messages

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        for each in self._interceptors:
            try:
                each.on_commit(offsets)
            except Exception:  # noqa: BLE001 (it is logged)
                CONSUMER.exception("the interceptor %s has failed", type(each).__name__)


def _intercepted(interceptor: ConsumerInterceptor, messages: list[Message[Any, Any]]) -> list[Message[Any, Any]]:
    try:
        made = list(interceptor.on_consume(messages))
        if len(made) != len(messages):
            raise ValueError(f"on_consume returned {len(made)} messages, for {len(messages)}")
    except Exception:  # noqa: BLE001 (it is logged)
        CONSUMER.exception("the interceptor %s has failed", type(interceptor).__name__)
        return messages
    return made
