"""Frames themselves, ApiVersions and what describes the cluster."""

from __future__ import annotations

import struct
from typing import Final

from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.api_versions import ApiVersionsRequest
from ottla.protocol.schemas.describe_cluster import DescribeClusterRequest
from ottla.protocol.schemas.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest
from ottla.protocol.schemas.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.interop.probes.talk import CLOSED, Talk

_CLIENT: Final = struct.pack(">h", 5) + b"probe"


def _raw(talk: Talk, label: str, frame: bytes) -> None:
    """Bytes that no client sends; the response's bytes, or None."""
    talk.send_bytes(struct.pack(">i", len(frame)) + frame, on="raw")
    answer = talk.receive_frame(on="raw")
    talk.keep(label, {"answer": CLOSED if answer is None else answer.hex()})


def probe_frames(talk: Talk) -> None:
    talk.ask("ApiVersions v4", 4, ApiVersionsRequest("probe", "1.0"))
    talk.ask("ApiVersions v0", 0, ApiVersionsRequest())
    talk.ask("ApiVersions with a bad client name", 3, ApiVersionsRequest("no spaces allowed", "1.0"))
    _raw(talk, "ApiVersions of an unknown version", struct.pack(">hhi", 18, 99, 7) + _CLIENT + b"\0\1\1\0")
    _raw(talk, "an unknown api key", struct.pack(">hhi", 999, 0, 7) + _CLIENT)
    _raw(talk, "an unknown version of Metadata", struct.pack(">hhi", ApiKey.METADATA, 99, 7) + _CLIENT)
    _raw(talk, "an api of inter-broker traffic", struct.pack(">hhi", 4, 0, 7) + _CLIENT)
    _raw(talk, "a request that ends early", struct.pack(">hhi", ApiKey.METADATA, 4, 7) + _CLIENT + b"\0\0")
    _raw(talk, "a frame of a negative size", b"")
    _raw(talk, "a request of one byte", b"\0")


def probe_cluster(talk: Talk) -> None:
    talk.create_topic("probe-cluster")
    talk.ask("DescribeCluster v0", 0, DescribeClusterRequest())
    talk.ask("DescribeCluster v1", 1, DescribeClusterRequest())
    talk.ask("DescribeCluster v2", 2, DescribeClusterRequest(include_fenced_brokers=True))
    talk.ask("DescribeCluster of controllers", 1, DescribeClusterRequest(endpoint_type=2))
    talk.ask("ListPartitionReassignments", 0, ListPartitionReassignmentsRequest(1_000))
    for version in (0, 2):
        for name, partition in (("probe-cluster", 0), ("probe-cluster", 7), ("probe-nowhere", 0)):
            request = ElectLeadersRequest(0, [TopicPartitions(name, [partition])], 5_000)
            talk.ask(f"ElectLeaders v{version} {name}-{partition}", version, request)
    # Apache Kafka first requests a block of ids from its controller.
    talk.wait_until(4, InitProducerIdRequest(None, 60_000), lambda answer: "error_code=0" in repr(answer))
    for version in (0, 2, 4):
        talk.ask(f"InitProducerId v{version}", version, InitProducerIdRequest(None, 60_000))
    talk.ask("InitProducerId with an empty transactional id", 4, InitProducerIdRequest("", 60_000))
