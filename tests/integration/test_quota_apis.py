"""Quotas over raw requests: on Apache Kafka and here alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin.quotas import alter_quotas, describe_quotas
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.quotas import EntityType, QuotaEntity, QuotaKind
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas import alter_client_quotas as altering
from ottla.protocol.schemas import describe_client_quotas as describing
from ottla.protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.schemas.fetch import FetchResponse
from ottla.protocol.schemas.produce import ProduceResponse
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.integration.raw_peer import FETCH_VERSION, PRODUCE_VERSION, RawPeer, fetch_request, produce_frame

RATE, CONNECTIONS = "producer_byte_rate", "connection_creation_rate"
# Of `RawPeer`.
CLIENT = QuotaEntity(client_id="raw")
Parts = list[tuple[str, str | None]]


@pytest.fixture
def peer(bootstrap: str) -> Iterator[RawPeer]:
    with RawPeer(parse_bootstrap(bootstrap)[0]) as opened:
        yield opened


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[Cluster]:
    """Quotas that a test sets are removed after it."""
    yield cluster
    for entity, values in describe_quotas(cluster):
        alter_quotas(cluster, entity, dict.fromkeys(QuotaKind(name) for name in values))


def alter(peer: RawPeer, parts: Parts, *ops: tuple[str, float], validate_only: bool = False, version: int = 1) -> int:
    entry = altering.EntryData(
        [altering.EntityData(*part) for part in parts], [altering.OpData(key, value) for key, value in ops]
    )
    peer.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, altering.AlterClientQuotasRequest([entry], validate_only))
    _, response = peer.answer(ApiKey.ALTER_CLIENT_QUOTAS, version)
    assert isinstance(response, altering.AlterClientQuotasResponse)
    (result,) = response.entries
    return result.error_code


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("parts", "op"),
    [
        ([("user", "alice")], (RATE, 1024.0)),
        ([("user", "alice"), ("client-id", None)], ("request_percentage", 0.5)),
        ([("client-id", None)], ("controller_mutation_rate", 0.25)),
        ([("ip", "10.0.0.1")], (CONNECTIONS, 5.0)),
        ([("ip", None)], (CONNECTIONS, 5.0)),
        ([("user", "alice")], (RATE, 1024.0000001)),
    ],
)
def test_quota_of_an_entity_is_valid(peer: RawPeer, version: int, parts: Parts, op: tuple[str, float]) -> None:
    assert alter(peer, parts, op, validate_only=True, version=version) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("parts", "op"),
    [
        ([], (RATE, 1.0)),
        ([("group", "g")], (RATE, 1.0)),
        ([("user", "")], (RATE, 1.0)),
        ([("user", "a"), ("ip", "10.0.0.1")], (RATE, 1.0)),
        ([("ip", "10.0.0.1")], (RATE, 1.0)),
        ([("user", "a")], (CONNECTIONS, 1.0)),
        ([("user", "a")], ("unknown", 1.0)),
        ([("user", "a")], (RATE, 0.5)),
        ([("user", "a")], (RATE, 0.0)),
        ([("user", "a")], (RATE, -1.0)),
        ([("user", "a")], ("request_percentage", -1.0)),
    ],
)
def test_what_is_no_quota_is_refused(peer: RawPeer, parts: Parts, op: tuple[str, float]) -> None:
    assert alter(peer, parts, op) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "components",
    [
        [("user", 2, None), ("user", 2, None)],
        [("ip", 2, None), ("user", 2, None)],
        [("user", 0, None)],
        [("user", 1, "alice")],
    ],
)
def test_filter_that_means_nothing_is_refused(peer: RawPeer, components: list[tuple[str, int, str | None]]) -> None:
    request = describing.DescribeClientQuotasRequest([describing.ComponentData(*each) for each in components])
    peer.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)
    _, response = peer.answer(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
    assert isinstance(response, describing.DescribeClientQuotasResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_entities_are_selected_by_their_parts(clean: Cluster) -> None:
    user, both, default = QuotaEntity("alice"), QuotaEntity("alice", "app"), QuotaEntity("", "")
    for entity in (user, both, default):
        alter_quotas(clean, entity, {QuotaKind.PRODUCER_BYTE_RATE: 1_000})

    def found(wanted: dict[EntityType, str | None], *, strict: bool = False) -> set[QuotaEntity]:
        those = describe_quotas(clean, wanted, strict=strict)
        assert all(each.values == {RATE: 1_000.0} for each in those)
        return {each.entity for each in those}

    eventually(lambda: len(found({})) == 3)
    assert found({EntityType.USER: None}) == {user, both, default}
    assert found({EntityType.USER: "alice"}) == {user, both}
    assert found({EntityType.USER: "alice"}, strict=True) == {user}
    assert found({EntityType.USER: "", EntityType.CLIENT_ID: None}) == {default}
    assert found({EntityType.CLIENT_ID: "app"}) == {both}


def test_produce_above_the_rate_has_the_time_by_which_it_is_above(
    bootstrap: str, clean: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    alter_quotas(clean, CLIENT, {QuotaKind.PRODUCER_BYTE_RATE: 20_000})

    def throttle_ms() -> int:
        # A connection for each: a throttled one is muted.
        with RawPeer(parse_bootstrap(bootstrap)[0]) as peer:
            peer.send(produce_frame(topic, 1, value=bytes(400_000)))
            _, response = peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
        assert isinstance(response, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        return response.throttle_time_ms

    # At Apache Kafka a quota counts some time after the answer, and then for what came before it, too.
    found_ms = eventually(throttle_ms)
    # 400 kB in ten seconds are twice the rate: it is above it by ten seconds, and by twenty for each request before.
    assert found_ms % 20_000 == pytest.approx(10_000, abs=4_000)


def test_fetch_above_the_rate_is_empty(bootstrap: str, clean: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()
    with RawPeer(parse_bootstrap(bootstrap)[0]) as peer:
        for _ in range(3):
            peer.send(produce_frame(topic, 1, value=bytes(8_000)))
            peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
    alter_quotas(clean, CLIENT, {QuotaKind.CONSUMER_BYTE_RATE: 1_000})

    def fetched() -> FetchResponse:
        with RawPeer(parse_bootstrap(bootstrap)[0]) as peer:
            peer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, max_wait_ms=0))
            _, response = peer.answer(ApiKey.FETCH, FETCH_VERSION)
        assert isinstance(response, FetchResponse)
        return response

    throttled = eventually(fetched, lambda response: response.throttle_time_ms)
    assert [topic.partitions for topic in throttled.responses if topic.partitions] == []


@pytest.mark.parametrize(("version", "code"), [(7, ErrorCode.THROTTLING_QUOTA_EXCEEDED), (5, ErrorCode.NONE)])
def test_topics_above_the_rate_are_refused_or_delayed_by_the_version(
    bootstrap: str, clean: Cluster, new_topic: NewTopicName, version: int, code: ErrorCode
) -> None:
    alter_quotas(clean, CLIENT, {QuotaKind.CONTROLLER_MUTATION_RATE: 1.0})
    stem, attempt = new_topic(), 0

    def create() -> CreateTopicsResponse:
        nonlocal attempt
        attempt += 1
        with RawPeer(parse_bootstrap(bootstrap)[0]) as peer:
            names = [f"{stem}-{attempt}-{number}" for number in range(2)]
            request = CreateTopicsRequest([CreatableTopic(name, 30, 1) for name in names])
            peer.ask(ApiKey.CREATE_TOPICS, version, request)
            _, response = peer.answer(ApiKey.CREATE_TOPICS, version)
        assert isinstance(response, CreateTopicsResponse)
        return response

    response = eventually(create, lambda response: response.throttle_time_ms)
    assert response.topics[-1].error_code == code
    # Thirty partitions and more above a burst of eleven, at one a second.
    assert response.throttle_time_ms > 10_000
