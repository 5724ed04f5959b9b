"""Each API with the rights that it needs, and without each of them: the codes are those of Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from ottla.broker.authorization.api_guards import API_GUARDS, NOTHING
from ottla.broker.authorization.guard import Caller, Passed
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.runtime.steps import run_steps
from tests.unit.broker.authorization.rights import Rights
from tests.unit.broker.handlers.small_broker import SmallBroker, codes

R = TypeVar("R")

NONE = ErrorCode.NONE
TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def add_partitions(*topics: str) -> Callable[[], object]:
    return lambda: add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(topic, [0]) for topic in topics],
    )


def markers() -> object:
    topic = write_txn_markers.WritableTxnMarkerTopic("orders", [0])
    return write_txn_markers.WriteTxnMarkersRequest([write_txn_markers.WritableTxnMarker(1, 0, topics=[topic])])


class Case(NamedTuple):
    """A request, its rights, and the first error code without any of them."""

    api: ApiKey
    version: int
    request: Callable[[], object]
    response: type[object]
    rights: tuple[str, ...]
    denied: ErrorCode


def topic_offsets() -> object:
    return list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic("orders", [list_offsets.ListOffsetsPartition(0, -1, -1)])]
    )


def commit() -> object:
    partition = offset_commit.OffsetCommitRequestPartition(0, 5)
    return offset_commit.OffsetCommitRequest(
        "g", topics=[offset_commit.OffsetCommitRequestTopic("orders", [partition])]
    )


def commit_in_transaction() -> object:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 5)
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic("orders", [partition])]
    return txn_offset_commit.TxnOffsetCommitRequest("t", "g", 1, 0, topics=topics)


def fetch_offsets() -> object:
    topics = [offset_fetch.OffsetFetchRequestTopic("orders", [0])]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=topics)])


def fetch_offsets_of_one() -> object:
    return offset_fetch.OffsetFetchRequest("g", [offset_fetch.OffsetFetchRequestTopic("orders", [0])])


def delete_offsets() -> object:
    partition = offset_delete.OffsetDeleteRequestPartition(0)
    return offset_delete.OffsetDeleteRequest("g", [offset_delete.OffsetDeleteRequestTopic("orders", [partition])])


def epoch_end() -> object:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[offset_for_leader_epoch.OffsetForLeaderTopic("orders", [partition])]
    )


def records() -> object:
    return delete_records.DeleteRecordsRequest(
        [delete_records.DeleteRecordsTopic("orders", [delete_records.DeleteRecordsPartition(0, 0)])], 1_000
    )


def rule() -> object:
    return create_acls.CreateAclsRequest([create_acls.AclCreation(2, "orders", 3, "User:bob", "*", 3, 3)])


def config(kind: int, name: str) -> Callable[[], object]:
    return lambda: describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(kind, name, None)])


def alter(kind: int, name: str) -> Callable[[], object]:
    return lambda: alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(kind, name)])


def alter_some(kind: int, name: str) -> Callable[[], object]:
    return lambda: incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(kind, name)]
    )


def reassign() -> object:
    topic = alter_partition_reassignments.ReassignableTopic("orders", [])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


CASES = [
    Case(ApiKey.LIST_OFFSETS, 5, topic_offsets, list_offsets.ListOffsetsResponse, ("DESCRIBE TOPIC:orders",), TOPIC),
    Case(
        ApiKey.METADATA,
        9,
        lambda: metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")]),
        metadata.MetadataResponse,
        ("DESCRIBE TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.OFFSET_COMMIT,
        7,
        commit,
        offset_commit.OffsetCommitResponse,
        ("READ GROUP:g", "READ TOPIC:orders"),
        GROUP,
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        8,
        fetch_offsets,
        offset_fetch.OffsetFetchResponse,
        ("DESCRIBE GROUP:g", "DESCRIBE TOPIC:orders"),
        GROUP,
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        5,
        fetch_offsets_of_one,
        offset_fetch.OffsetFetchResponse,
        ("DESCRIBE GROUP:g", "DESCRIBE TOPIC:orders"),
        GROUP,
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        1,
        fetch_offsets_of_one,
        offset_fetch.OffsetFetchResponse,
        ("DESCRIBE GROUP:g", "DESCRIBE TOPIC:orders"),
        GROUP,
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        4,
        lambda: find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]),
        find_coordinator.FindCoordinatorResponse,
        ("DESCRIBE GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        2,
        lambda: find_coordinator.FindCoordinatorRequest("g"),
        find_coordinator.FindCoordinatorResponse,
        ("DESCRIBE GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.JOIN_GROUP,
        5,
        lambda: join_group.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer"),
        join_group.JoinGroupResponse,
        ("READ GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.HEARTBEAT,
        4,
        lambda: heartbeat.HeartbeatRequest("g", 1, "m"),
        heartbeat.HeartbeatResponse,
        ("READ GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.LEAVE_GROUP,
        4,
        lambda: leave_group.LeaveGroupRequest("g"),
        leave_group.LeaveGroupResponse,
        ("READ GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.SYNC_GROUP,
        4,
        lambda: sync_group.SyncGroupRequest("g", 1, "m"),
        sync_group.SyncGroupResponse,
        ("READ GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.DESCRIBE_GROUPS,
        5,
        lambda: describe_groups.DescribeGroupsRequest(["g"]),
        describe_groups.DescribeGroupsResponse,
        ("DESCRIBE GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        5,
        lambda: create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)]),
        create_topics.CreateTopicsResponse,
        ("CREATE TOPIC:new",),
        TOPIC,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        5,
        lambda: delete_topics.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000),
        delete_topics.DeleteTopicsResponse,
        ("DELETE TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        lambda: delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("orders")], timeout_ms=10_000),
        delete_topics.DeleteTopicsResponse,
        ("DELETE TOPIC:orders",),
        TOPIC,
    ),
    Case(ApiKey.DELETE_RECORDS, 1, records, delete_records.DeleteRecordsResponse, ("DELETE TOPIC:orders",), TOPIC),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        3,
        lambda: init_producer_id.InitProducerIdRequest(None),
        init_producer_id.InitProducerIdResponse,
        ("IDEMPOTENT_WRITE CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        3,
        lambda: init_producer_id.InitProducerIdRequest(None),
        init_producer_id.InitProducerIdResponse,
        ("WRITE TOPIC:any*",),
        CLUSTER,
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        3,
        epoch_end,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        ("DESCRIBE TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        3,
        epoch_end,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        ("CLUSTER_ACTION CLUSTER",),
        TOPIC,
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        config(2, "orders"),
        describe_configs.DescribeConfigsResponse,
        ("DESCRIBE_CONFIGS TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        config(32, "g"),
        describe_configs.DescribeConfigsResponse,
        ("DESCRIBE_CONFIGS GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        config(4, ""),
        describe_configs.DescribeConfigsResponse,
        ("DESCRIBE_CONFIGS CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        1,
        alter(2, "orders"),
        alter_configs.AlterConfigsResponse,
        ("ALTER_CONFIGS TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.ALTER_CONFIGS, 1, alter(32, "g"), alter_configs.AlterConfigsResponse, ("ALTER_CONFIGS GROUP:g",), GROUP
    ),
    Case(
        ApiKey.ALTER_CONFIGS, 1, alter(4, ""), alter_configs.AlterConfigsResponse, ("ALTER_CONFIGS CLUSTER",), CLUSTER
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter_some(2, "orders"),
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        ("ALTER_CONFIGS TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter_some(32, "g"),
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        ("ALTER_CONFIGS GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter_some(4, ""),
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        ("ALTER_CONFIGS CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        lambda: describe_log_dirs.DescribeLogDirsRequest(None),
        describe_log_dirs.DescribeLogDirsResponse,
        ("DESCRIBE CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        1,
        lambda: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic("orders", 2, None)], timeout_ms=10_000
        ),
        create_partitions.CreatePartitionsResponse,
        ("ALTER TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        2,
        lambda: elect_leaders.ElectLeadersRequest(0, None),
        elect_leaders.ElectLeadersResponse,
        ("ALTER CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        reassign,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
        ("ALTER CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None),
        list_partition_reassignments.ListPartitionReassignmentsResponse,
        ("DESCRIBE CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        lambda: describe_producers.DescribeProducersRequest(
            [describe_producers.DescribeProducersTopicRequest("orders", [0])]
        ),
        describe_producers.DescribeProducersResponse,
        ("READ TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        lambda: list_config_resources.ListConfigResourcesRequest([2]),
        list_config_resources.ListConfigResourcesResponse,
        ("DESCRIBE_CONFIGS CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest("orders")]
        ),
        describe_topic_partitions.DescribeTopicPartitionsResponse,
        ("DESCRIBE TOPIC:orders",),
        TOPIC,
    ),
    Case(
        ApiKey.DELETE_GROUPS,
        2,
        lambda: delete_groups.DeleteGroupsRequest(["g"]),
        delete_groups.DeleteGroupsResponse,
        ("DELETE GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        0,
        delete_offsets,
        offset_delete.OffsetDeleteResponse,
        ("DELETE GROUP:g", "READ TOPIC:orders"),
        GROUP,
    ),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            "g", "", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"], topic_partitions=[]
        ),
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
        ("READ GROUP:g", "DESCRIBE TOPIC:orders"),
        GROUP,
    ),
    Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        lambda: consumer_group_describe.ConsumerGroupDescribeRequest(["g"]),
        consumer_group_describe.ConsumerGroupDescribeResponse,
        ("DESCRIBE GROUP:g",),
        GROUP,
    ),
    Case(
        ApiKey.DESCRIBE_ACLS,
        3,
        lambda: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        describe_acls.DescribeAclsResponse,
        ("DESCRIBE CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        lambda: describe_client_quotas.DescribeClientQuotasRequest([]),
        describe_client_quotas.DescribeClientQuotasResponse,
        ("DESCRIBE_CONFIGS CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        lambda: alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.EntryData(
                    [alter_client_quotas.EntityData("user", "bob")],
                    [alter_client_quotas.OpData("producer_byte_rate", 1_000.0)],
                )
            ]
        ),
        alter_client_quotas.AlterClientQuotasResponse,
        ("ALTER_CONFIGS CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            [describe_user_scram_credentials.UserName("bob")]
        ),
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
        ("DESCRIBE CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials.ScramCredentialDeletion("bob", 1)]
        ),
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
        ("ALTER CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        add_partitions("orders"),
        add_partitions_to_txn.AddPartitionsToTxnResponse,
        ("WRITE TRANSACTIONAL_ID:t", "WRITE TOPIC:orders"),
        ID,
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        5,
        lambda: add_partitions_to_txn.AddPartitionsToTxnRequest(
            [add_partitions_to_txn.AddPartitionsToTxnTransaction("t", 1, 0)]
        ),
        add_partitions_to_txn.AddPartitionsToTxnResponse,
        ("CLUSTER_ACTION CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        lambda: add_offsets_to_txn.AddOffsetsToTxnRequest("t", 1, 0, "g"),
        add_offsets_to_txn.AddOffsetsToTxnResponse,
        ("WRITE TRANSACTIONAL_ID:t", "READ GROUP:g"),
        ID,
    ),
    Case(
        ApiKey.END_TXN,
        5,
        lambda: end_txn.EndTxnRequest("t", 1, 0, True),
        end_txn.EndTxnResponse,
        ("WRITE TRANSACTIONAL_ID:t",),
        ID,
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        commit_in_transaction,
        txn_offset_commit.TxnOffsetCommitResponse,
        ("WRITE TRANSACTIONAL_ID:t", "READ GROUP:g", "READ TOPIC:orders"),
        ID,
    ),
    Case(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        markers,
        write_txn_markers.WriteTxnMarkersResponse,
        ("CLUSTER_ACTION CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        markers,
        write_txn_markers.WriteTxnMarkersResponse,
        ("ALTER CLUSTER",),
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        lambda: describe_transactions.DescribeTransactionsRequest(["t"]),
        describe_transactions.DescribeTransactionsResponse,
        ("DESCRIBE TRANSACTIONAL_ID:t",),
        ID,
    ),
    Case(ApiKey.CREATE_ACLS, 3, rule, create_acls.CreateAclsResponse, ("ALTER CLUSTER",), CLUSTER),
    Case(
        ApiKey.DELETE_ACLS,
        3,
        lambda: delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]),
        delete_acls.DeleteAclsResponse,
        ("ALTER CLUSTER",),
        CLUSTER,
    ),
]
DENIALS = {TOPIC, GROUP, CLUSTER, ID}


def broker() -> SmallBroker:
    made = SmallBroker()
    made.add_topic("orders")
    return made


def name_of(case: Case) -> str:
    return f"{case.api.name}-v{case.version}-{case.rights[0]}"


def test_every_api_that_the_broker_offers_has_a_row() -> None:
    assert set(API_GUARDS) == set(API_VERSIONS)


def test_every_row_with_a_right_is_among_the_cases() -> None:
    # LIST_GROUPS and LIST_TRANSACTIONS leave out, PRODUCE and FETCH are guarded where they look up partitions: their
    # own tests.
    of_their_own = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
    needed = {api for api, row in API_GUARDS.items() if row.needs != NOTHING} - of_their_own
    assert {case.api for case in CASES} == needed


def test_the_page_on_security_lists_the_rows() -> None:
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text().partition("### What each API needs")[2]
    page = page.partition("\n## ")[0]
    listed = re.findall(r"^\| (\w+) \| (.+) \|$", page, re.MULTILINE)[1:]
    assert listed == [
        ("".join(part.title() for part in api.name.split("_")), row.needs) for api, row in API_GUARDS.items()
    ]


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_a_request_with_its_rights_is_served_as_without_an_authorizer(case: Case) -> None:
    rights = Rights(*case.rights)
    expected = codes(await broker().ask(case.api, case.version, case.request(), case.response))
    found = codes(await broker().ask(case.api, case.version, case.request(), case.response, rights.access))
    assert found == expected
    assert not DENIALS.intersection(found)
    assert rights.denials == []


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_a_request_without_rights_is_refused_with_the_code_of_its_resource(case: Case) -> None:
    rights = Rights()
    made = broker()
    found = codes(await made.ask(case.api, case.version, case.request(), case.response, rights.access))
    assert [code for code in found if code] == [case.denied]
    assert [each.api for each in rights.denials] == [case.api]
    assert (made.created, made.deleted, made.altered, made.replaced, made.grown, made.reassigned) == (
        [],
        [],
        [],
        [],
        [],
        [],
    )


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if " TOPIC:" in case.rights[-1] and case.rights[1:] and case.api is not ApiKey.OFFSET_FETCH
    ],
    ids=name_of,
)
async def test_a_request_with_the_rights_on_its_group_and_id_alone_is_refused_for_its_topics(case: Case) -> None:
    rights = Rights(*case.rights[:-1])
    found = codes(await broker().ask(case.api, case.version, case.request(), case.response, rights.access))
    assert TOPIC in found
    assert GROUP not in found


@pytest.mark.parametrize("case", [case for case in CASES if case.denied is TOPIC], ids=name_of)
async def test_a_refusal_does_not_show_whether_the_topic_exists(case: Case) -> None:
    with_topic = await broker().ask(case.api, case.version, case.request(), case.response, Rights().access)
    without = await SmallBroker().ask(case.api, case.version, case.request(), case.response, Rights().access)
    assert with_topic == without


async def ask_metadata(
    made: SmallBroker, request: metadata.MetadataRequest, *rights: str, version: int = 9
) -> list[tuple[str | None, int]]:
    found = await made.ask(ApiKey.METADATA, version, request, metadata.MetadataResponse, Rights(*rights).access)
    return [(topic.name, topic.error_code) for topic in found.topics]


@pytest.mark.parametrize("version", [0, 1, 9, 12])
async def test_metadata_of_all_topics_leaves_out_those_that_may_not_be_described(version: int) -> None:
    made = broker()
    made.add_topic("clicks")
    everything = metadata.MetadataRequest([] if version == 0 else None)
    assert await ask_metadata(made, everything, "DESCRIBE TOPIC:clicks", version=version) == [("clicks", NONE)]
    assert await ask_metadata(made, everything, version=version) == []


@pytest.mark.parametrize("version", [0, 1, 9, 12])
async def test_metadata_of_denied_topics_alone_is_not_that_of_all(version: int) -> None:
    made = broker()
    made.add_topic("clicks")
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")])
    assert await ask_metadata(made, request, "DESCRIBE TOPIC:clicks", version=version) == [("orders", TOPIC)]


async def test_a_topic_by_its_id_is_refused_without_its_name() -> None:
    made = broker()
    topic_id = made.topics.by_name["orders"].topic_id
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(topic_id, None)])
    found = await made.ask(ApiKey.METADATA, 12, request, metadata.MetadataResponse, Rights().access)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in found.topics] == [(None, topic_id, TOPIC)]


@pytest.mark.parametrize(
    ("rights", "code", "created"),
    [
        ([], TOPIC, []),
        (["CREATE TOPIC:new", "DESCRIBE TOPIC:new"], NONE, ["new"]),
        (["CREATE CLUSTER", "DESCRIBE TOPIC:new"], NONE, ["new"]),
    ],
)
async def test_a_topic_is_created_automatically_only_with_the_right_to_create_it(
    rights: list[str], code: ErrorCode, created: list[str]
) -> None:
    made = SmallBroker()
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="new")])
    found = await ask_metadata(made, request, "DESCRIBE TOPIC:new", *rights)
    assert [new.name for new, _ in made.created] == created
    if code is TOPIC:
        assert found == [("new", TOPIC)]
    request.allow_auto_topic_creation = False
    assert await ask_metadata(SmallBroker(), request, "DESCRIBE TOPIC:new") == [("new", UNKNOWN)]


async def test_authorized_operations_are_those_of_the_caller() -> None:
    made = broker()
    request = metadata.MetadataRequest(
        None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    rights = Rights("READ TOPIC:orders", "DESCRIBE CLUSTER", "ALTER CLUSTER")
    found = await made.ask(ApiKey.METADATA, 9, request, metadata.MetadataResponse, rights.access)
    assert [topic.topic_authorized_operations for topic in found.topics] == [1 << 3 | 1 << 8]
    assert found.cluster_authorized_operations == 1 << 7 | 1 << 8
    blind = await made.ask(ApiKey.METADATA, 9, request, metadata.MetadataResponse, Rights("CREATE CLUSTER").access)
    assert blind.cluster_authorized_operations == 0
    groups = await made.ask(
        ApiKey.DESCRIBE_GROUPS,
        5,
        describe_groups.DescribeGroupsRequest(["g"], include_authorized_operations=True),
        describe_groups.DescribeGroupsResponse,
        Rights("READ GROUP:g").access,
    )
    assert [group.authorized_operations for group in groups.groups] == [1 << 3 | 1 << 8]


async def test_pages_of_partitions_show_no_hidden_topic_in_their_cursor() -> None:
    made = SmallBroker()
    for name in ("a", "b", "c", "d"):
        made.add_topic(name)
    rights = Rights("DESCRIBE TOPIC:b", "DESCRIBE TOPIC:d")
    request = describe_topic_partitions.DescribeTopicPartitionsRequest([], 1)
    first = await made.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        request,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
        rights.access,
    )
    assert [topic.name for topic in first.topics] == ["b"]
    assert first.next_cursor == describe_topic_partitions.Cursor("d", 0)
    request.cursor = describe_topic_partitions.Cursor("c", 0)
    second = await made.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        request,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
        rights.access,
    )
    assert [topic.name for topic in second.topics] == ["d"]
    assert second.next_cursor is None
    assert rights.denials == []


async def test_a_created_topic_shows_its_settings_only_with_the_right_to_describe_them() -> None:
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)])
    for rights, code in ((["CREATE CLUSTER"], TOPIC), (["CREATE CLUSTER", "DESCRIBE_CONFIGS TOPIC:new"], NONE)):
        found = await broker().ask(
            ApiKey.CREATE_TOPICS, 7, request, create_topics.CreateTopicsResponse, Rights(*rights).access
        )
        (topic,) = found.topics
        assert topic.error_code == NONE
        assert topic.topic_config_error_code == code
        assert bool(topic.configs) is (code is NONE)


async def test_a_deletion_by_id_shows_the_name_to_those_who_may_describe_the_topic() -> None:
    made = broker()
    topic_id = made.topics.by_name["orders"].topic_id
    for rights, name in (([], None), (["DESCRIBE TOPIC:orders"], "orders")):
        found = await made.ask(
            ApiKey.DELETE_TOPICS,
            6,
            delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(None, topic_id)]),
            delete_topics.DeleteTopicsResponse,
            Rights(*rights).access,
        )
        assert [(each.name, each.error_code) for each in found.responses] == [(name, TOPIC)]
    assert made.deleted == []


async def test_elements_with_and_without_a_right_share_a_request() -> None:
    made = broker()
    made.add_topic("clicks")
    request = create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic(name, 2, None) for name in ("orders", "clicks")]
    )
    rights = Rights("ALTER TOPIC:clicks")
    found = await made.ask(
        ApiKey.CREATE_PARTITIONS, 1, request, create_partitions.CreatePartitionsResponse, rights.access
    )
    assert {each.name: each.error_code for each in found.results} == {"orders": TOPIC, "clicks": NONE}
    assert [name for name, *_ in made.grown] == ["clicks"]
    assert rights.denied_texts() == ["ALTER TOPIC:orders"]


async def test_a_transactional_id_needs_its_own_right() -> None:
    request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
    found = await broker().ask(
        ApiKey.FIND_COORDINATOR, 4, request, find_coordinator.FindCoordinatorResponse, Rights().access
    )
    assert [each.error_code for each in found.coordinators] == [ID]
    wanted = init_producer_id.InitProducerIdRequest("t")
    answer = await broker().ask(
        ApiKey.INIT_PRODUCER_ID, 3, wanted, init_producer_id.InitProducerIdResponse, Rights("WRITE TOPIC:*").access
    )
    assert answer.error_code == ID


async def test_one_forbidden_topic_keeps_all_out_of_a_transaction() -> None:
    request = add_partitions("orders", "clicks")()
    rights = Rights("WRITE TRANSACTIONAL_ID:t", "WRITE TOPIC:clicks")
    found = await broker().ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, add_partitions_to_txn.AddPartitionsToTxnResponse, rights.access
    )
    codes = {
        topic.name: [each.partition_error_code for each in topic.results_by_partition]
        for topic in found.results_by_topic_v3_and_below
    }
    assert codes == {"orders": [TOPIC], "clicks": [ErrorCode.OPERATION_NOT_ATTEMPTED]}
    assert rights.denied_texts() == ["WRITE TOPIC:orders"]


async def test_group_of_another_does_not_get_into_a_transaction() -> None:
    request = add_offsets_to_txn.AddOffsetsToTxnRequest("t", 1, 0, "theirs")
    found = await broker().ask(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        request,
        add_offsets_to_txn.AddOffsetsToTxnResponse,
        Rights("WRITE TRANSACTIONAL_ID:t").access,
    )
    assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_offsets_of_a_transaction_need_the_group_too() -> None:
    rights = Rights("WRITE TRANSACTIONAL_ID:t", "READ TOPIC:orders")
    found = await broker().ask(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        commit_in_transaction(),
        txn_offset_commit.TxnOffsetCommitResponse,
        rights.access,
    )
    assert codes(found) == [GROUP]


async def test_transactional_ids_are_listed_to_those_who_may_describe_them() -> None:
    for right, is_listed in (("DESCRIBE TRANSACTIONAL_ID:t", True), ("DESCRIBE TRANSACTIONAL_ID:u", False)):
        listed = list_transactions.ListTransactionsResponse(
            transaction_states=[list_transactions.ListedTransactionState("t", 1, "Ongoing")]
        )
        request = list_transactions.ListTransactionsRequest()
        found = await finished(ApiKey.LIST_TRANSACTIONS, request, listed, broker(), right)
        assert bool(found.transaction_states) is is_listed


async def test_groups_are_listed_to_those_who_may_describe_them() -> None:
    made = broker()
    for rights, is_listed in (
        (["DESCRIBE CLUSTER"], True),
        (["DESCRIBE GROUP:g"], True),
        (["DESCRIBE GROUP:h"], False),
    ):
        listed = list_groups.ListGroupsResponse(groups=[list_groups.ListedGroup("g", "consumer", "Stable", "classic")])
        found = await finished(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), listed, made, *rights)
        assert bool(found.groups) is is_listed


@pytest.mark.parametrize("version", [1, 5, 8])
async def test_committed_offsets_of_a_topic_that_may_not_be_described_are_refused(version: int) -> None:
    request = fetch_offsets() if version >= 8 else fetch_offsets_of_one()
    response = offset_fetch.OffsetFetchResponse(groups=[offset_fetch.OffsetFetchResponseGroup("g")])
    found = await finished(
        ApiKey.OFFSET_FETCH, request, response, broker(), "DESCRIBE GROUP:g", "DESCRIBE TOPIC:clicks", version=version
    )
    topics = found.groups[0].topics if version >= 8 else found.topics
    assert [(topic.name, codes(topic)) for topic in topics] == [("orders", [TOPIC])]


async def test_all_committed_offsets_leave_out_topics_that_may_not_be_described() -> None:
    topics = [offset_fetch.OffsetFetchResponseTopic(name, []) for name in ("orders", "clicks")]
    response = offset_fetch.OffsetFetchResponse(groups=[offset_fetch.OffsetFetchResponseGroup("g", topics)])
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=None)])
    found = await finished(
        ApiKey.OFFSET_FETCH, request, response, broker(), "READ GROUP:g", "READ TOPIC:clicks", version=8
    )
    assert [topic.name for topic in found.groups[0].topics] == ["clicks"]


async def test_a_group_whose_members_read_a_hidden_topic_is_described_without_them() -> None:
    member = consumer_group_describe.DescribedMember("m", None, None, 1, "c", "/h", ["orders", "clicks"])
    response = consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[consumer_group_describe.DescribedGroup(0, None, "g", "Stable", members=[member])]
    )
    request = consumer_group_describe.ConsumerGroupDescribeRequest(["g"])
    found = await finished(
        ApiKey.CONSUMER_GROUP_DESCRIBE, request, response, broker(), "DESCRIBE GROUP:g", "DESCRIBE TOPIC:clicks"
    )
    assert [(group.error_code, group.members) for group in found.groups] == [(TOPIC, [])]


async def finished(api: ApiKey, request: object, response: R, made: SmallBroker, *rights: str, version: int = 0) -> R:
    """The response, as the guards complete that of a handler."""
    guard = API_GUARDS[api].guard
    assert guard is not None
    outcome = run_steps(guard(request, Caller(Rights(*rights).access, api, version, "c"), made))
    assert isinstance(outcome, Passed)
    if outcome.finish is not None:
        run_steps(outcome.finish(response))
    return response


@pytest.mark.parametrize(("rights", "replica_id"), [(["CLUSTER_ACTION CLUSTER"], 2), ([], -1)])
def test_a_broker_id_alone_makes_no_replica_of_a_request_for_offsets(rights: list[str], replica_id: int) -> None:
    request = list_offsets.ListOffsetsRequest(
        2, topics=[list_offsets.ListOffsetsTopic("orders", [list_offsets.ListOffsetsPartition(0, -1, -1)])]
    )
    guard = API_GUARDS[ApiKey.LIST_OFFSETS].guard
    assert guard is not None
    access = Rights("DESCRIBE TOPIC:orders", *rights).access
    outcome = run_steps(guard(request, Caller(access, ApiKey.LIST_OFFSETS, 5, "c"), broker()))
    assert isinstance(outcome, Passed)
    assert outcome.request.replica_id == replica_id
