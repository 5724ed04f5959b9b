"""Answers of Metadata that are kept or shared are those of one principal, by the rules in force."""

from __future__ import annotations

import asyncio
from typing import cast

from ottla.broker.async_requests import AsyncRequests
from ottla.broker.authorization.api_guards import GuardedCalls
from ottla.broker.net.connection import Connection
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_request_header, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from tests.unit.broker.authorization.rights import Rights
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.test_async_requests import Reached, joined

VERSION = 9
# Enough partitions for an answer that is kept.
PARTITIONS_COUNT = 100


async def names(calls: AsyncRequests, rights: Rights) -> list[str | None]:
    """The topics that a client with these rights sees."""
    reached = Reached()
    reached.access = rights.access  # type: ignore[assignment]
    body = encode_request(ApiKey.METADATA, VERSION, MetadataRequest(None))
    frame = request_frame(ApiKey.METADATA, VERSION, 77, "a-client", body)
    header = read_request_header(frame, 4, len(frame))
    answer = joined(await calls.answer(header, frame[header.body_position :], cast("Connection", reached)))
    _, position = read_response_header(ApiKey.METADATA, VERSION, answer, 4, len(answer))
    response = decode_response(ApiKey.METADATA, VERSION, answer[position:])
    assert isinstance(response, MetadataResponse)
    return [topic.name for topic in response.topics]


def calls() -> AsyncRequests:
    broker = SmallBroker()
    broker.add_topic("orders", PARTITIONS_COUNT)
    broker.add_topic("clicks", PARTITIONS_COUNT)
    return AsyncRequests(broker, guarded=GuardedCalls())


async def test_equal_requests_of_two_principals_at_once_have_their_own_answers() -> None:
    ada = Rights("DESCRIBE TOPIC:orders")
    bob = Rights("DESCRIBE TOPIC:clicks", principal="User:bob")
    made = calls()
    assert await asyncio.gather(*(names(made, each) for each in (ada, bob, ada, bob))) == [
        ["orders"],
        ["clicks"],
        ["orders"],
        ["clicks"],
    ]
    # Those that are kept.
    assert [await names(made, each) for each in (bob, ada)] == [["clicks"], ["orders"]]


async def test_a_kept_answer_ends_with_the_rules_by_which_it_was_made() -> None:
    rights = Rights("DESCRIBE TOPIC:orders", "DESCRIBE TOPIC:clicks")
    made = calls()
    assert await names(made, rights) == ["clicks", "orders"]
    rights.set("DESCRIBE TOPIC:clicks")
    assert await names(made, rights) == ["clicks"]
    rights.set()
    assert await names(made, rights) == []
