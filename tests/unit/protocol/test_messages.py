from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError, WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_request, decode_response, encode_request, encode_response
from ottla.protocol.schemas.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest
from ottla.protocol.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.property.wire_samples import SAMPLE_UUID


def test_fields_that_a_version_lacks_are_read_as_their_defaults() -> None:
    body = encode_request(ApiKey.METADATA, 1, MetadataRequest([MetadataRequestTopic(name="t")]))
    request = decode_request(ApiKey.METADATA, 1, body)
    assert request == MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)


def test_fields_that_a_version_lacks_are_left_out_of_a_response() -> None:
    response = MetadataResponse(cluster_id="c", topics=[MetadataResponseTopic(name="t", topic_id=SAMPLE_UUID)])
    body = encode_response(ApiKey.METADATA, 1, response)
    assert decode_response(ApiKey.METADATA, 1, body) == MetadataResponse(topics=[MetadataResponseTopic(name="t")])


def test_set_field_that_a_version_lacks_is_refused_in_a_request() -> None:
    with pytest.raises(RequestError, match="v2 has no field producer_id") as refused:
        encode_request(ApiKey.INIT_PRODUCER_ID, 2, InitProducerIdRequest(producer_id=5))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_ignorable_field_that_a_version_lacks_is_left_out_of_a_request() -> None:
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, current_leader_epoch=9)])])
    body = encode_request(ApiKey.LIST_OFFSETS, 3, request)
    request.topics[0].partitions[0].current_leader_epoch = -1
    assert decode_request(ApiKey.LIST_OFFSETS, 3, body) == request


def test_null_where_a_version_has_none_is_refused_by_the_writer() -> None:
    with pytest.raises(RequestError, match="topics must not be null"):
        encode_request(ApiKey.METADATA, 0, MetadataRequest(None))


def test_null_where_a_version_has_none_is_refused_by_the_reader() -> None:
    with pytest.raises(WireError, match="topics must not be null"):
        decode_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    "request_", [ListOffsetsRequest(replica_id=2**31), MetadataRequest([MetadataRequestTopic(name="x" * 40_000)])]
)
def test_value_that_does_not_fit_is_refused_by_the_writer(request_: object) -> None:
    api = ApiKey.METADATA if isinstance(request_, MetadataRequest) else ApiKey.LIST_OFFSETS
    with pytest.raises(RequestError):
        encode_request(api, 4, request_)


def response_of(partition: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])


def test_tagged_fields_are_read_in_any_order_and_unknown_ones_stepped_over() -> None:
    partition = PartitionData(diverging_epoch=EpochEndOffset(3, 44), records=b"")
    body = encode_response(ApiKey.FETCH, 12, response_of(partition))
    section = b"\x01\x00\x0d" + bytes.fromhex("00000003000000000000002c00")
    assert section in body
    unknown_first = b"\x02\x09\x02zz" + section[1:]
    response = decode_response(ApiKey.FETCH, 12, body.replace(section, unknown_first))
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].diverging_epoch == EpochEndOffset(3, 44)


def test_tagged_field_whose_size_lies_is_refused() -> None:
    partition = PartitionData(diverging_epoch=EpochEndOffset(3, 44), records=b"")
    body = encode_response(ApiKey.FETCH, 12, response_of(partition))
    longer = body.replace(b"\x01\x00\x0d", b"\x01\x00\x0e").replace(b"\x2c\x00", b"\x2c\x00\x00")
    with pytest.raises(WireError, match="claims 14 bytes and has 13"):
        decode_response(ApiKey.FETCH, 12, longer)


def test_records_of_a_response_are_a_view_of_its_body() -> None:
    partition = PartitionData(records=b"batches")
    body = encode_response(ApiKey.FETCH, 11, response_of(partition))
    response = decode_response(ApiKey.FETCH, 11, body)
    assert isinstance(response, FetchResponse)
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is body


@pytest.mark.parametrize("version", [-1, 13])
def test_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(WireError, match="known are v0 to v12"):
        decode_request(ApiKey.METADATA, version, b"")
