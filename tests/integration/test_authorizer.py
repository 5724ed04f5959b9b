"""A broker process with an authorizer: rules over the wire, their effect at once, and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TypeVar

import pytest
from click.testing import CliRunner

from ottla.cli.acl import command
from ottla.client.admin.access import create_acls, delete_acls, describe_acls
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.security.acl import (
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
from tests.integration.raw_peer import RawPeer

R = TypeVar("R")

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
# Every client here is the same principal, and needs no rule for what no rule covers.
OPEN = {**SETTINGS, "allow.everyone.if.no.acl.found": "true"}
ANONYMOUS = "User:ANONYMOUS"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def rule(
    topic: str, operation: Operation, permission: Permission = Permission.ALLOW, principal: str = ANONYMOUS
) -> Acl:
    pattern = ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, topic)
    return Acl(pattern, AccessEntry(principal, "*", operation, permission))


class Client:
    """A cluster's client for administration, and a connection for requests."""

    def __init__(self, broker: RunningBroker) -> None:
        self.bootstrap = broker.bootstrap
        self.cluster = Cluster(broker.bootstrap)
        self.peer = RawPeer(broker)

    def ask(self, api: ApiKey, version: int, request: object, response_class: type[R]) -> R:
        self.peer.ask(api, version, request)
        _, response = self.peer.answer(api, version)
        assert isinstance(response, response_class)
        return response

    def produce(self, topic: str) -> int:
        batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
        data = [TopicProduceData(topic, [PartitionProduceData(0, batch)])]
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data)
        response = self.ask(ApiKey.PRODUCE, 9, request, ProduceResponse)
        return response.responses[0].partition_responses[0].error_code

    def fetch(self, topic: str) -> int:
        wanted = FetchTopic(topic, partitions=[FetchPartition(0, -1, 0, partition_max_bytes=1_000)])
        request = FetchRequest(topics=[wanted], max_wait_ms=0, max_bytes=1_000)
        response = self.ask(ApiKey.FETCH, 11, request, FetchResponse)
        return response.responses[0].partitions[0].error_code

    def metadata(self, topic: str) -> int:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = self.ask(ApiKey.METADATA, 9, request, MetadataResponse)
        return response.topics[0].error_code

    def close(self) -> None:
        self.peer.socket.close()
        self.cluster.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    # A rule about the cluster would deny the next ones to a client that is not a super user.
    with RunningBroker(settings={**SETTINGS, "super.users": ANONYMOUS}) as running:
        yield running


@pytest.fixture
def client(guarded: RunningBroker) -> Iterator[Client]:
    made = Client(guarded)
    try:
        yield made
        delete_acls(made.cluster, [AclFilter()])
    finally:
        made.close()


def test_a_rule_takes_effect_at_the_next_request_of_an_open_connection() -> None:
    with RunningBroker(settings=OPEN) as running, closing(Client(running)) as client:
        Admin(client.cluster).create_topic("orders", 1)
        assert (client.produce("orders"), client.fetch("orders"), client.metadata("orders")) == (0, 0, 0)
        assert list(create_acls(client.cluster, [rule("orders", Operation.WRITE)]).values()) == [None]
        assert (client.produce("orders"), client.fetch("orders"), client.metadata("orders")) == (0, DENIED, 0)
        create_acls(client.cluster, [rule("orders", Operation.ALL, Permission.DENY)])
        assert (client.produce("orders"), client.fetch("orders"), client.metadata("orders")) == (DENIED, DENIED, DENIED)
        deleted = delete_acls(client.cluster, [AclFilter(permission=Permission.DENY)])
        assert deleted == [rule("orders", Operation.ALL, Permission.DENY)]
        assert (client.produce("orders"), client.fetch("orders")) == (0, DENIED)
        delete_acls(client.cluster, [AclFilter()])
        assert (client.produce("orders"), client.fetch("orders")) == (0, 0)


def test_rules_are_described_as_they_were_created(client: Client) -> None:
    rules = [rule("b", Operation.READ), rule("a", Operation.WRITE, Permission.DENY), rule("a", Operation.DESCRIBE)]
    create_acls(client.cluster, rules)
    create_acls(client.cluster, rules[:1])
    assert sorted(describe_acls(client.cluster, AclFilter())) == sorted(rules)
    of_name = AclFilter(ResourceType.TOPIC, "a", PatternType.MATCH, operation=Operation.DESCRIBE)
    assert describe_acls(client.cluster, of_name) == [rules[2]]
    assert describe_acls(client.cluster, AclFilter(ResourceType.GROUP)) == []


@pytest.mark.parametrize(
    ("creation", "code"),
    [
        (AclCreation(2, "t", 3, "User:a", "*", 3, 3), 0),
        (AclCreation(4, "kafka-cluster", 3, "User:a", "*", 3, 3), 0),
        (AclCreation(4, "another", 3, "User:a", "*", 3, 3), ErrorCode.INVALID_REQUEST),
        (AclCreation(2, "", 3, "User:a", "*", 3, 3), ErrorCode.INVALID_REQUEST),
        (AclCreation(2, "t", 3, "a", "*", 3, 3), ErrorCode.INVALID_REQUEST),
        (AclCreation(2, "t", 2, "User:a", "*", 3, 3), ErrorCode.INVALID_REQUEST),
        (AclCreation(1, "t", 3, "User:a", "*", 3, 3), ErrorCode.INVALID_REQUEST),
        (AclCreation(2, "t", 3, "User:a", "*", 1, 3), ErrorCode.INVALID_REQUEST),
        (AclCreation(2, "t", 3, "User:a", "*", 3, 1), ErrorCode.INVALID_REQUEST),
        (AclCreation(2, "a/../b\0", 4, "User:a", "no address", 12, 2), 0),
    ],
)
def test_each_rule_of_a_request_has_its_own_code(client: Client, creation: AclCreation, code: int) -> None:
    good = AclCreation(2, "other", 3, "User:a", "*", 3, 3)
    response = client.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest([creation, good]), CreateAclsResponse)
    assert [result.error_code for result in response.results] == [code, 0]
    assert len(describe_acls(client.cluster, AclFilter())) == (2 if code == 0 else 1)


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_unknown_number_closes_the_connection(client: Client, field: str) -> None:
    creation = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    setattr(creation, field, 99)
    client.peer.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest([creation]))
    assert client.peer.is_closed_by_broker()
    assert describe_acls(client.cluster, AclFilter()) == []


def test_rules_outlive_a_restart_and_are_in_force_before_the_first_request() -> None:
    with RunningBroker(settings=OPEN) as running:
        client = Client(running)
        Admin(client.cluster).create_topic("orders", 1)
        create_acls(client.cluster, [rule("orders", Operation.WRITE)])
        client.close()
        assert running.stop() == 0
        running.start()
        client = Client(running)
        assert client.fetch("orders") == DENIED
        assert client.produce("orders") == 0
        client.close()


def acl(bootstrap: str, *arguments: str) -> str:
    done = CliRunner().invoke(command, [arguments[0], "--bootstrap-server", bootstrap, *arguments[1:]])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_verb_adds_lists_and_removes_rules(client: Client) -> None:
    bob = ("--allow-principal", "User:bob")
    added = acl(client.bootstrap, "add", "--topic", "views", "--group", "g", "--consumer", *bob)
    assert added.splitlines() == [
        "added: Allow Read on Topic views to User:bob from *",
        "added: Allow Describe on Topic views to User:bob from *",
        "added: Allow Read on Group g to User:bob from *",
    ]
    acl(client.bootstrap, "add", "--topic", "vi", "--resource-pattern-type", "prefixed", "--producer", *bob)
    acl(
        client.bootstrap,
        "add",
        "--cluster",
        "--operation",
        "alter",
        "--deny-principal",
        "User:*",
        "--deny-host",
        "10.0.0.9",
    )
    listed = acl(client.bootstrap, "list", "--topic", "views").splitlines()
    assert len(listed) == 1 + 2 + 3
    assert len(acl(client.bootstrap, "list").splitlines()) == 1 + 2 + 1 + 3 + 1
    assert acl(client.bootstrap, "list", "--principal", "User:eve") == ""
    removed = acl(client.bootstrap, "remove", "--topic", "views", "--operation", "Read", *bob)
    assert removed == "removed: Allow Read on Topic views to User:bob from *\n"
    removed = acl(client.bootstrap, "remove", "--topic", "views", "--resource-pattern-type", "match", "--force")
    assert len(removed.splitlines()) == 1 + 3
    left = acl(client.bootstrap, "list", "--json").splitlines()
    assert [line.partition('"name": ')[2].partition(",")[0] for line in left] == ['"g"', '"kafka-cluster"']


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "--topic", "t"),
        ("add", "--allow-principal", "User:a"),
        ("add", "--topic", "t", "--allow-principal", "User:a", "--operation", "Fly"),
        ("add", "--topic", "t", "--allow-principal", "User:a", "--consumer"),
        ("add", "--topic", "t", "--allow-principal", "User:a", "--deny-host", "10.0.0.1"),
        ("remove", "--topic", "t"),
    ],
)
def test_the_verb_refuses_what_is_not_whole(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.output


def test_the_verb_says_that_a_broker_has_no_authorizer() -> None:
    with RunningBroker() as running:
        done = CliRunner().invoke(command, ["list", "--bootstrap-server", running.bootstrap])
    assert done.exit_code != 0
    assert "No Authorizer is configured" in str(done.exception)
