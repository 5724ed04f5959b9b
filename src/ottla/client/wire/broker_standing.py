"""Whether brokers may lead, as they say themselves (DescribeCluster v2, KIP-1073)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.wire.address import Address
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.client.wire.metadata import BrokerInfo
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_FENCED_FROM_VERSION: Final = 2


class BrokerStanding(NamedTuple):
    """One broker's answer.

    `fenced_ids`: brokers that lead nothing, since their sessions are over or may be.  A broker of Ottla knows it of
    itself alone; one that is too old for the question names none.
    """

    cluster_id: str | None
    brokers: Mapping[int, BrokerInfo]
    fenced_ids: frozenset[int]


def describe_standing(cluster: Cluster, timeout_ms: float) -> BrokerStanding:
    """From any broker of `cluster`, in one attempt.  Raises `ClientError`: `ConnectionLost` when it hangs up."""
    deadline = cluster.retrying.deadline(timeout_ms)
    connection = cluster.connect_any(deadline)
    if not connection.supports(ApiKey.DESCRIBE_CLUSTER, at_least=_FENCED_FROM_VERSION):
        cluster.refresh_once([], deadline)
        return BrokerStanding(cluster.info.cluster_id, cluster.info.brokers, frozenset())
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = connection.call(
        ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse, deadline, at_least=_FENCED_FROM_VERSION
    )
    if response.error_code:
        raise BrokerRefused(error_code_of(response.error_code), "the description of the cluster")
    return BrokerStanding(
        response.cluster_id,
        {
            each.broker_id: BrokerInfo(each.broker_id, Address(each.host, each.port), each.rack)
            for each in response.brokers
        },
        frozenset(each.broker_id for each in response.brokers if each.is_fenced),
    )
