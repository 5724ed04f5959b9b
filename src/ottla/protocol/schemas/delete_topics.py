"""DeleteTopics (API key 20; KIP-516)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, nullable_string, string_array, uuid


@message
class DeleteTopicState:
    name: str | None = nullable_string("6+", nullable="6+")
    topic_id: UUID = uuid("6+")


@message
class DeleteTopicsRequest:
    """`topic_names` up to v5, `topics` from v6 on."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = string_array("1-5")
    timeout_ms: int = int32()


@message
class DeletableTopicResult:
    name: str | None = nullable_string(nullable="6+", default="")
    topic_id: UUID = uuid("6+")
    error_code: int = int16()
    error_message: str | None = nullable_string("5+", nullable="5+")


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
