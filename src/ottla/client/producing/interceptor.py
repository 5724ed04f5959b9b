"""Code of a user that sees each `send`: what it gets, and what it may change (KIP-42)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.client.producing.delivery import Receipt
from ottla.model.errors import OttlaError
from ottla.records.record import Headers


@dataclass(frozen=True, slots=True)
class OutgoingMessages:
    """The messages of one `send`: one, or those of a set.  `dataclasses.replace` makes others of them.

    values, keys   one for each message, before they are serialized; their count does not change
    partition      None: that of the key, or any
    headers        of every message
    timestamp_ms   of every message; None: now
    notes          what interceptors keep until the acknowledgement, each by its own key
    """

    topic: str
    values: Sequence[object]
    keys: Sequence[object]
    partition: int | None
    headers: Headers
    timestamp_ms: int | None
    is_set: bool
    notes: dict[object, object] = field(default_factory=dict, compare=False)


class ProducerInterceptor:
    """Override what is needed.  Both methods must return soon; what they raise is logged, and changes nothing."""

    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        """In `send`, on its thread, before the messages are serialized: gives what to send in their place."""
        return messages

    def on_acknowledgement(
        self, messages: OutgoingMessages, receipts: Sequence[Receipt], error: OttlaError | None
    ) -> None:
        """When all of them are stored or have failed: on the producer's thread, or in `send`, which refuses them or is
        interrupted.

        `receipts` of those that are stored; `error`: why others are not.
        """
