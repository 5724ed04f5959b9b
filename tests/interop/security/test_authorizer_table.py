"""Each API with and without its rights on Apache Kafka and on Ottla: the same error codes.

Neither broker has logins: both see one principal, and rights are given by address.  The administrator connects from
127.0.0.1, the client whose rights are compared from 127.0.0.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import pytest

from ottla.client.admin.access import create_acls, delete_acls, describe_acls
from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas import fetch, find_coordinator, init_producer_id, produce
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.security.acl import (
    ANONYMOUS,
    CLUSTER_NAME,
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import RawPeer
from tests.peers.apache_kafka import ApacheKafka, KafkaUnavailable
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.unit.broker.authorization.rights import patterns_of
from tests.unit.broker.authorization.test_api_guards import CASES, DENIALS, ID, NONE, TOPIC, Case, name_of
from tests.unit.broker.handlers.small_broker import codes

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + 300)]

ADMIN_HOST, CLIENT_HOST = "127.0.0.1", "127.0.0.2"
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the first rules, which cover every resource.
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
NEW_TOPIC: Final = NewTopic("orders", 1, 1)
EVERYTHING: Final = [
    (ResourceType.CLUSTER, CLUSTER_NAME),
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
]
LEAVE_GROUP_EPOCH: Final = -1
# Until the topics of coordinators have leaders, and the broker has a block of producer ids.
NOT_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def one_record() -> object:
    batch = bytes(build_batch([Record(0, 1_767_225_600_000, None, b"value")]))
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[produce.TopicProduceData("orders", [produce.PartitionProduceData(0, batch)])],
    )


def all_records() -> object:
    partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1_000, topics=[fetch.FetchTopic("orders", partitions=[partition])]
    )


FIND_COORDINATOR_OF_TRANSACTIONS: Final = Case(
    ApiKey.FIND_COORDINATOR,
    4,
    lambda: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]),
    find_coordinator.FindCoordinatorResponse,
    ("DESCRIBE TRANSACTIONAL_ID:t",),
    ID,
)
# What no guard decides, or with another code.
MORE_CASES: Final = [
    Case(ApiKey.PRODUCE, 9, one_record, produce.ProduceResponse, ("WRITE TOPIC:orders",), TOPIC),
    Case(ApiKey.FETCH, 11, all_records, fetch.FetchResponse, ("READ TOPIC:orders",), TOPIC),
    FIND_COORDINATOR_OF_TRANSACTIONS,
    Case(
        ApiKey.INIT_PRODUCER_ID,
        3,
        lambda: init_producer_id.InitProducerIdRequest("t", 60_000),
        init_producer_id.InitProducerIdResponse,
        ("WRITE TRANSACTIONAL_ID:t",),
        ID,
    ),
]


# Those of Apache Kafka, and of Ottla, without any right and with all.
DEPARTURES: Final[Mapping[str, tuple[list[list[int]], list[list[int]]]]] = {
    # An empty set of values for all brokers: Ottla removes those that are set.
    "ALTER_CONFIGS-v1-ALTER_CONFIGS CLUSTER": ([[31], [40]], [[31], [0]]),
    # Apache Kafka adds a result without a name for each user of the request, and never answers a request for all users
    # (KafkaApis fails at its null); Ottla has the code once, in both.
    "DESCRIBE_USER_SCRAM_CREDENTIALS-v0-DESCRIBE CLUSTER": ([[31, 31], [0, 91]], [[31], [0, 91]]),
}


def leave_of(member_id: str) -> Case:
    return Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda: ConsumerGroupHeartbeatRequest("g", member_id, LEAVE_GROUP_EPOCH),
        ConsumerGroupHeartbeatResponse,
        (),
        NONE,
    )


class Peer:
    """A broker where only the administrator has rights, and those that a test gives to the client."""

    def __init__(self, bootstrap: str) -> None:
        self._address = parse_bootstrap(bootstrap)[0]
        self._cluster = Cluster(bootstrap)
        self._groups = GroupAdmin(self._cluster)
        entry = AccessEntry(ANONYMOUS, ADMIN_HOST, Operation.ALL, Permission.ALLOW)
        for resource_type, name in EVERYTHING:
            acl = Acl(ResourcePattern(resource_type, PatternType.LITERAL, name), entry)
            assert create_acls(self._cluster, [acl]) == {acl: None}
            eventually(lambda wanted=acl: wanted in describe_acls(self._cluster, AclFilter()))  # type: ignore[misc]
        # The first query for a coordinator of transactions creates their topic.
        eventually(lambda: not any(codes(self._ask(ADMIN_HOST, FIND_COORDINATOR_OF_TRANSACTIONS))))

    def give(self, *rights: str) -> None:
        """Replace the rights of the client."""
        of_client = AclFilter(host=CLIENT_HOST)
        delete_acls(self._cluster, [of_client])
        wanted = [
            Acl(pattern, entry._replace(principal=ANONYMOUS, host=CLIENT_HOST))
            for pattern, entries in patterns_of(rights).items()
            for entry in entries
        ]
        if wanted:
            create_acls(self._cluster, wanted)
        eventually(lambda: sorted(describe_acls(self._cluster, of_client)) == sorted(wanted))

    def lay_out(self) -> None:
        """The topic of the requests, with an offset that their group has committed; without what they create."""
        admin = Admin(self._cluster)
        with suppress(UnknownGroup):
            for member in self._groups.describe("g").members:
                self._ask(ADMIN_HOST, leave_of(member.member_id))
            self._groups.delete("g")
        admin.delete_topics(["new", "orders"])
        eventually(lambda: not {"new", "orders"}.intersection(topic.name for topic in admin.list_topics()))
        admin.create_topics([NEW_TOPIC])
        self._groups.commit("g", {TopicPartition("orders", 0): CommittedOffset(1)})

    def codes(self, case: Case) -> list[int]:
        return eventually(lambda: codes(self._ask(CLIENT_HOST, case)), lambda found: not NOT_YET.intersection(found))

    def _ask(self, host: str, case: Case) -> object:
        with RawPeer(self._address, source_host=host) as peer:
            peer.ask(case.api, case.version, case.request())
            _, response = peer.answer(case.api, case.version)
        assert isinstance(response, case.response)
        return response

    def close(self) -> None:
        self._cluster.close()


@pytest.fixture(scope="module")
def peers() -> Iterator[tuple[Peer, Peer]]:
    try:
        with ApacheKafka(SETTINGS) as kafka, RunningBroker(settings=SETTINGS) as ottla:
            found = Peer(kafka.bootstrap), Peer(ottla.bootstrap)
            yield found
            for each in found:
                each.close()
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


# The deletion of all rules includes those of the administrator.
ALL_CASES: Final = sorted([*CASES, *MORE_CASES], key=lambda case: case.api is ApiKey.DELETE_ACLS)


@pytest.mark.parametrize("case", ALL_CASES, ids=name_of)
def test_error_codes_are_those_of_apache_kafka(peers: tuple[Peer, Peer], case: Case) -> None:
    partial = [(), *((right,) for right in case.rights if len(case.rights) > 1), case.rights]
    found: list[list[list[int]]] = []
    for peer in peers:
        of_peer: list[list[int]] = []
        # What is refused changes nothing.
        peer.lay_out()
        for rights in partial:
            peer.give(*rights)
            of_peer.append(peer.codes(case))
        found.append(of_peer)
    assert tuple(found) == DEPARTURES.get(name_of(case), (found[0], found[0]))
    refusals = [[code for code in each if code in DENIALS] for each in found[0]]
    assert case.denied in refusals[0]
    assert refusals[-1] == []
