"""Requests about the cluster, its settings, access rules and producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla.broker.authorization.guard import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    MESSAGES,
    TOPIC_DENIED,
    Caller,
    Guard,
    Outcome,
    Passed,
    divided,
)
from ottla.broker.authorization.topic_guards import cluster_operations
from ottla.broker.context import BrokerContext
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas import alter_configs, incremental_alter_configs
from ottla.protocol.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
)
from ottla.protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.schemas.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.schemas.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.schemas.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.schemas.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.schemas.describe_configs import DescribeConfigsResult
from ottla.protocol.schemas.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.schemas.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.protocol.schemas.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import Operation

_MESSAGE: Final = MESSAGES[CLUSTER_DENIED]
# The resource types of configuration requests; access rules number them differently.
_CONFIGS_OF_TOPIC: Final = 2
_CONFIGS_OF_CLUSTER: Final = frozenset({4, 8, 16})
_CONFIGS_OF_GROUP: Final = 32


class _ConfigResource(Protocol):
    resource_type: int
    resource_name: str


def describe_cluster(request: DescribeClusterRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """Nothing; the authorized operations need DESCRIBE on the cluster."""

    def finish(response: DescribeClusterResponse) -> Steps[None]:
        yield
        if request.include_cluster_authorized_operations and not response.error_code:
            response.cluster_authorized_operations = cluster_operations(caller)

    yield
    return Passed(request, finish)


def _of_configs(
    operation: Operation,
    results_of: Callable[[Any], list[Any]],
    result: Callable[[ErrorCode, str, int, str], object],
) -> Guard:
    """Each resource of a request about settings needs `operation`: on the topic or group, for brokers on the cluster.

    `results_of` a response are those of the resources; `result` makes one of error code, message, type and name.
    """

    def guard(request: Any, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
        request.resources, denied = yield from divided(
            request.resources, lambda each: _allows_configs(each, operation, caller)
        )
        refused = {(each.resource_type, each.resource_name): _code_of(each) for each in denied}

        def finish(response: Any) -> Steps[None]:
            results = results_of(response)
            for (resource_type, name), code in refused.items():
                results.append(result(code, MESSAGES[code], resource_type, name))
                yield

        return Passed(request, finish)

    return guard


describe_configs: Final = _of_configs(
    Operation.DESCRIBE_CONFIGS, lambda response: response.results, DescribeConfigsResult
)
alter_configurations: Final = _of_configs(
    Operation.ALTER_CONFIGS, lambda response: response.responses, alter_configs.AlterConfigsResourceResponse
)
alter_configurations_incrementally: Final = _of_configs(
    Operation.ALTER_CONFIGS, lambda response: response.responses, incremental_alter_configs.AlterConfigsResourceResponse
)


def _allows_configs(resource: _ConfigResource, operation: Operation, caller: Caller) -> bool:
    kind, name = resource.resource_type, resource.resource_name
    if kind == _CONFIGS_OF_TOPIC:
        return caller.allows_topic(operation, name)
    if kind == _CONFIGS_OF_GROUP:
        return caller.allows_group(operation, name)
    # Its handler refuses any other type.
    return kind not in _CONFIGS_OF_CLUSTER or caller.allows_cluster(operation)


def _code_of(resource: _ConfigResource) -> ErrorCode:
    codes = {_CONFIGS_OF_TOPIC: TOPIC_DENIED, _CONFIGS_OF_GROUP: GROUP_DENIED}
    return codes.get(resource.resource_type, CLUSTER_DENIED)


# The responses of requests that need a right on the cluster as a whole.


def describe_log_dirs_refused(request: DescribeLogDirsRequest, caller: Caller) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=CLUSTER_DENIED)


def describe_acls_refused(request: DescribeAclsRequest, caller: Caller) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=CLUSTER_DENIED, error_message=_MESSAGE)


def create_acls_refused(request: CreateAclsRequest, caller: Caller) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(CLUSTER_DENIED, _MESSAGE)] * len(request.creations))


def delete_acls_refused(request: DeleteAclsRequest, caller: Caller) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(CLUSTER_DENIED, _MESSAGE)] * len(request.filters))


def describe_client_quotas_refused(
    request: DescribeClientQuotasRequest, caller: Caller
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=CLUSTER_DENIED, error_message=_MESSAGE)


def alter_client_quotas_refused(request: AlterClientQuotasRequest, caller: Caller) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[AlteredEntryData(CLUSTER_DENIED, _MESSAGE, entry.entity) for entry in request.entries]
    )


def describe_user_scram_credentials_refused(
    request: DescribeUserScramCredentialsRequest, caller: Caller
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=CLUSTER_DENIED, error_message=_MESSAGE)


def alter_user_scram_credentials_refused(
    request: AlterUserScramCredentialsRequest, caller: Caller
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(each.name for each in request.deletions)
    names |= dict.fromkeys(each.name for each in request.upsertions)
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(name, CLUSTER_DENIED, _MESSAGE) for name in names]
    )


def elect_leaders_refused(request: ElectLeadersRequest, caller: Caller) -> ElectLeadersResponse:
    # v0 has no error of the whole request.
    refused = [
        ReplicaElectionResult(
            topic.topic, [PartitionResult(index, CLUSTER_DENIED, _MESSAGE) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    code = ErrorCode.NONE if caller.api_version == 0 else CLUSTER_DENIED
    return ElectLeadersResponse(error_code=code, replica_election_results=refused if caller.api_version == 0 else [])


def alter_partition_reassignments_refused(
    request: AlterPartitionReassignmentsRequest, caller: Caller
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=_MESSAGE)


def list_partition_reassignments_refused(
    request: ListPartitionReassignmentsRequest, caller: Caller
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=_MESSAGE)


def list_config_resources_refused(request: ListConfigResourcesRequest, caller: Caller) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=CLUSTER_DENIED)
