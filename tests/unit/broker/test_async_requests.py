"""From a frame to the frame of its answer."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import pytest

from ottla.broker import async_requests as async_requests
from ottla.broker.async_requests import AsyncRequests
from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers import HANDLERS
from ottla.broker.net.auto_creations import AutoCreations
from ottla.broker.net.connection import ANONYMOUS, Connection
from ottla.broker.net.outbox import Piece
from ottla.broker.net.request_meter import SlowRequests
from ottla.model.errors import WireError
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import RequestHeader, read_request_header, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request, request_class
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.runtime.disk import FileRun
from tests.unit.broker.handlers.small_broker import HOST, NODE_ID, PORT, SmallBroker, SmallBrokers
from tests.unit.broker.live_brokers import live
from tests.unit.broker.roles import resign

COLD = [
    (api, version) for api in HANDLERS for version in range(API_VERSIONS[api].lowest, API_VERSIONS[api].highest + 1)
]


class Reached:
    """What cold calls want to know of a connection."""

    local_address = (HOST, PORT)
    principal, listener_name, access, quotas = ANONYMOUS, "PLAINTEXT", None, None
    peer_host = "192.0.2.1"
    auto_creations = AutoCreations()
    peer_name = "192.0.2.7:4711"
    client_id = "a-client"
    number = 0

    def __init__(self) -> None:
        self.release_reasons: list[str] = []
        self.answered_in_vain: dict[int, int] = {}

    def let_go(self) -> None:
        """Nothing is held."""

    def release(self, reason: str) -> None:
        self.release_reasons.append(reason)


CONNECTION = cast("Connection", Reached())


def joined(pieces: Sequence[Piece]) -> bytes:
    assert not any(isinstance(piece, FileRun) for piece in pieces)
    return b"".join(pieces)  # type: ignore[arg-type]  # no runs of files


async def ask(
    calls: AsyncRequests, api: ApiKey, version: int, request: object, connection: Reached | None = None
) -> object:
    frame = request_frame(api, version, 77, "a-client", encode_request(api, version, request))
    header = read_request_header(frame, 4, len(frame))
    reached = CONNECTION if connection is None else cast("Connection", connection)
    answer = joined(await calls.answer(header, frame[header.body_position :], reached))
    assert struct.unpack_from(">i", answer)[0] == len(answer) - 4
    correlation_id, position = read_response_header(api, version, answer, 4, len(answer))
    assert correlation_id == 77
    return decode_response(api, version, answer[position:])


@pytest.mark.parametrize(("api", "version"), COLD)
async def test_every_api_and_version_is_answered_with_a_whole_frame(api: ApiKey, version: int) -> None:
    request = request_class(api)()
    if isinstance(request, MetadataRequest):
        request.topics = []
    await ask(AsyncRequests(SmallBroker()), api, version, request)


async def test_unknown_version_of_api_versions_is_answered_in_16_bytes_behind_the_length() -> None:
    header = RequestHeader(18, 5, 77, "franz-go", 0)
    answer = await AsyncRequests(SmallBroker()).answer(header, b"fields of a later version", CONNECTION)
    assert joined(answer) == bytes.fromhex("00000010 0000004d 0023 00000001 0012 0000 0004")


async def test_body_that_is_not_of_its_version_is_refused() -> None:
    header = RequestHeader(ApiKey.METADATA, 4, 77, None, 0)
    with pytest.raises(WireError):
        await AsyncRequests(SmallBroker()).answer(header, b"\x7f\xff\xff\xff", CONNECTION)


class OverQuota:
    """The client's request time is used up: each answer throttles it."""

    def __init__(self) -> None:
        self.answers_count = 0

    def answered(self) -> int:
        self.answers_count += 1
        return 250


@pytest.mark.parametrize(("version", "throttle_ms"), [(1, 0), (3, 250)])
async def test_metadata_is_throttled_also_where_its_answer_has_no_place_for_the_time(
    version: int, throttle_ms: int
) -> None:
    reached = Reached()
    quotas = OverQuota()
    reached.quotas = cast("None", quotas)
    response = await ask(AsyncRequests(SmallBroker()), ApiKey.METADATA, version, MetadataRequest([]), reached)
    assert isinstance(response, MetadataResponse)
    assert (response.throttle_time_ms, quotas.answers_count) == (throttle_ms, 1)


@pytest.mark.parametrize("partitions_count", [1, 100])
async def test_metadata_follows_the_topics(partitions_count: int) -> None:
    """Large answers are kept as bytes, but never beyond a change."""
    broker = SmallBroker()
    calls = AsyncRequests(broker)
    everything = MetadataRequest(None)
    expected: list[str] = []
    for name in ("a", "b", "c"):
        broker.add_topic(name, partitions_count)
        expected.append(name)
        for _ in range(2):
            response = await ask(calls, ApiKey.METADATA, 12, everything)
            assert isinstance(response, MetadataResponse)
            assert [topic.name for topic in response.topics] == expected


async def test_metadata_that_makes_a_topic_is_answered_with_it_again_and_again() -> None:
    broker = SmallBroker()
    broker.add_topic("big", 100)
    calls = AsyncRequests(broker)
    request = MetadataRequest([MetadataRequestTopic(name="big"), MetadataRequestTopic(name="new")])
    answers = [await ask(calls, ApiKey.METADATA, 12, request) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert len(broker.created) == 1


class CountedMetadata:
    """The handler, which lets others run in its middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made_count = 0
        self.in_the_middle: Callable[[], object] = lambda: None
        self._handle = HANDLERS[ApiKey.METADATA]
        monkeypatch.setattr(async_requests, "HANDLERS", {**HANDLERS, ApiKey.METADATA: self.handle})

    async def handle(self, request: object, broker: BrokerContext, call: Call) -> object:
        self.made_count += 1
        await asyncio.sleep(0)
        self.in_the_middle()
        return await self._handle(request, broker, call)


async def ask_at_once(calls: AsyncRequests, request: MetadataRequest) -> list[object]:
    return await asyncio.gather(*(ask(calls, ApiKey.METADATA, 12, request) for _ in range(5)))


async def test_metadata_that_many_ask_for_at_once_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata, broker = CountedMetadata(monkeypatch), SmallBroker()
    broker.add_topic("t", 3)
    answers = await ask_at_once(AsyncRequests(broker), MetadataRequest(None))
    assert answers == answers[:1] * 5
    assert metadata.made_count == 1


async def test_metadata_during_which_a_topic_came_is_made_anew_for_those_who_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata, broker = CountedMetadata(monkeypatch), SmallBroker()
    names = iter(["t", "u"])
    metadata.in_the_middle = lambda: [broker.add_topic(name, 3) for name in itertools.islice(names, 1)]
    answers = await ask_at_once(AsyncRequests(broker), MetadataRequest(None))
    counts = [len(answer.topics) for answer in answers if isinstance(answer, MetadataResponse)]
    assert (counts, metadata.made_count) == ([1, 2, 2, 2, 2], 3)


async def test_unknown_topic_is_looked_for_anew_for_each_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection may have used up what it may create."""
    metadata = CountedMetadata(monkeypatch)
    request = MetadataRequest([MetadataRequestTopic(name="absent")], allow_auto_topic_creation=False)
    await ask_at_once(AsyncRequests(SmallBroker()), request)
    assert metadata.made_count == 5


async def test_metadata_that_failed_is_made_anew_for_those_who_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata, broker = CountedMetadata(monkeypatch), SmallBroker()
    failures = iter([OSError("the first one fails")])

    def fail_once() -> None:
        for failure in failures:
            raise failure

    metadata.in_the_middle = fail_once
    calls = AsyncRequests(broker)
    asked = [ask(calls, ApiKey.METADATA, 12, MetadataRequest(None)) for _ in range(3)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, MetadataResponse) for answer in answers] == [False, True, True]


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER])
async def test_request_that_takes_long_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, api: ApiKey
) -> None:
    monkeypatch.setattr(async_requests, "perf_counter", partial(next, itertools.count()))  # a second for each look
    await ask(AsyncRequests(SmallBroker(), SlowRequests(200)), api, API_VERSIONS[api].highest, request_class(api)())
    assert [each.getMessage() for each in caplog.records] == ["request.slow"]


class Registering(SmallBrokers):
    """It may lead again while it answers for the first time, and then not any more."""

    leads_when_asked: Sequence[bool] = ()

    @property
    def may_lead(self) -> bool:
        found, *self.leads_when_asked = self.leads_when_asked or (True,)
        return found

    @may_lead.setter
    def may_lead(self, value: bool) -> None:
        self.leads_when_asked = [value]


@pytest.mark.parametrize(
    ("api", "answered_count"), [(ApiKey.METADATA, 1), (ApiKey.FIND_COORDINATOR, 1), (ApiKey.LIST_OFFSETS, 100)]
)
async def test_client_that_looks_for_brokers_is_answered_and_released_by_one_that_may_not_lead(
    api: ApiKey, answered_count: int
) -> None:
    broker, reached = SmallBroker(), Reached()
    calls, version = AsyncRequests(broker), API_VERSIONS[api].highest
    frame = request_frame(api, version, 77, "a-client", encode_request(api, version, request_class(api)()))
    header = read_request_header(frame, 4, len(frame))
    body, connection = frame[header.body_position :], cast("Connection", reached)
    assert await calls.answer(header, body, connection)
    assert reached.release_reasons == []
    broker.brokers.may_lead = False
    for _ in range(2):
        assert await calls.answer(header, body, connection)
    assert reached.release_reasons == [], "no other broker is live"
    broker.brokers.live = live(broker.node_id, 7)
    for _ in range(answered_count):
        assert await calls.answer(header, body, connection)
    assert reached.release_reasons == [], "tools that ask once get their answer, and what they sent behind it"
    assert await calls.answer(header, body, connection)
    assert len(reached.release_reasons) == 1


async def test_client_that_asks_for_brokers_only_stays_connected_to_one_that_may_not_lead() -> None:
    broker, reached = SmallBroker(), Reached()
    broker.brokers.may_lead, broker.brokers.live = False, live(broker.node_id, 7)
    for topics, is_released in (([], False), ([], False), ([], False), (None, False), ([], False), (None, True)):
        request = MetadataRequest(topics)
        frame = request_frame(ApiKey.METADATA, 12, 77, "a-client", encode_request(ApiKey.METADATA, 12, request))
        header = read_request_header(frame, 4, len(frame))
        assert await AsyncRequests(broker).answer(header, frame[header.body_position :], cast("Connection", reached))
        assert bool(reached.release_reasons) is is_released


async def test_metadata_of_a_time_when_the_broker_led_is_not_told_when_it_does_not() -> None:
    broker, brokers = SmallBroker(), Registering()
    broker.brokers = brokers
    broker.add_topic("big", 8)
    broker.add_topic("bigger", 12)
    calls = AsyncRequests(broker)
    brokers.leads_when_asked = [False, False, *[True] * 22]
    assert await led_count(calls) == 20
    brokers.leads_when_asked = [False] * 24
    assert await led_count(calls) == 0


async def test_metadata_of_a_time_before_a_leader_resigned_is_not_answered_after_it() -> None:
    """Neither the topics nor the live brokers are others: this broker has registered again, and has not read so."""
    broker = SmallBroker()
    broker.is_sole = False
    broker.add_topic("big", 20)
    broker.place("big", replicas=(NODE_ID, 7), leader=NODE_ID, in_sync=(NODE_ID, 7))
    broker.brokers.live = live(NODE_ID, 7)
    calls = AsyncRequests(broker)
    assert [await led_count(calls) for _ in range(2)] == [20, 20]
    for partition in broker.partitions:
        resign(partition)
        broker.partitions.note_resignation()
    assert await led_count(calls) == 0


async def led_count(calls: AsyncRequests) -> int:
    response = await ask(calls, ApiKey.METADATA, 12, MetadataRequest(None))
    assert isinstance(response, MetadataResponse)
    return sum(each.error_code == 0 for topic in response.topics for each in topic.partitions)
