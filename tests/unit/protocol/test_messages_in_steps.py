"""Messages read and written in steps are those that are read and written at once."""

from __future__ import annotations

import pytest

from ottla.model.errors import WireError
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey
from ottla.protocol.messages import (
    decode_request,
    decode_request_steps,
    encode_request,
    encode_response,
    encode_response_steps,
    request_class,
    response_class,
)
from ottla.protocol.primitives import TAGGED_FIELDS_MAX, skip_tagged_fields
from ottla.protocol.reader import REQUEST_ELEMENTS_MAX
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.writer import is_long
from ottla.runtime.steps import run_steps
from tests.property.wire_samples import sample

EVERY = [(api, version) for api, (lowest, highest) in KNOWN_VERSIONS.items() for version in range(lowest, highest + 1)]


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_request_in_steps_is_the_same(api: ApiKey, version: int) -> None:
    body = encode_request(api, version, sample(request_class(api), version))
    assert run_steps(decode_request_steps(api, version, body)) == decode_request(api, version, body)
    if api not in (ApiKey.METADATA, ApiKey.ALTER_USER_SCRAM_CREDENTIALS):  # which may have more
        with pytest.raises(WireError, match="1 bytes after its end"):
            run_steps(decode_request_steps(api, version, body + b"\x00"))


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_response_in_steps_is_the_same(api: ApiKey, version: int) -> None:
    message = sample(response_class(api), version)
    assert run_steps(encode_response_steps(api, version, message)) == encode_response(api, version, message)
    assert encode_response(api, version, response_class(api)()) == run_steps(
        encode_response_steps(api, version, response_class(api)())
    )


@pytest.mark.parametrize("cut", range(0, 40, 7))
def test_request_that_ends_early_is_refused_as_at_once(cut: int) -> None:
    body = encode_request(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="abc")] * 3))[:cut]
    with pytest.raises(WireError) as at_once:
        decode_request(ApiKey.METADATA, 12, body)
    with pytest.raises(WireError) as in_steps:
        run_steps(decode_request_steps(ApiKey.METADATA, 12, body))
    assert str(in_steps.value) == str(at_once.value)


def test_large_messages_take_many_steps() -> None:
    body = encode_request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["group"] * 10_000))
    assert sum(1 for _ in decode_request_steps(ApiKey.DESCRIBE_GROUPS, 5, body)) > 100
    nested = encode_request(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="abc")] * 10_000))
    assert sum(1 for _ in decode_request_steps(ApiKey.METADATA, 12, nested)) > 100


def test_more_elements_than_any_client_sends_are_refused() -> None:
    body = encode_request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([""] * (REQUEST_ELEMENTS_MAX + 1)))
    with pytest.raises(WireError, match="more than 65536 elements"):
        run_steps(decode_request_steps(ApiKey.DESCRIBE_GROUPS, 5, body))


def test_text_that_apache_kafka_would_refuse_is_refused() -> None:
    for length, is_taken in ((32_767, True), (32_768, False)):
        body = encode_request(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="x" * length)]))
        if is_taken:
            decode_request(ApiKey.METADATA, 12, body)
        else:
            with pytest.raises(WireError, match="32767 are allowed"):
                decode_request(ApiKey.METADATA, 12, body)


def test_section_of_many_tagged_fields_is_refused() -> None:
    def section(count: int) -> memoryview:
        return memoryview(bytes([count]) + b"\x07\x00" * count)

    assert skip_tagged_fields(section(TAGGED_FIELDS_MAX), 0) == 1 + 2 * TAGGED_FIELDS_MAX
    with pytest.raises(WireError, match="65 tagged fields"):
        skip_tagged_fields(section(TAGGED_FIELDS_MAX + 1), 0)


def test_response_above_its_bound_is_refused() -> None:
    steps = encode_response_steps(ApiKey.METADATA, 12, sample(MetadataResponse, 12), 10)
    with pytest.raises(WireError, match="more than 10 bytes"):
        run_steps(steps)


def test_message_is_long_when_its_arrays_have_many_elements_together() -> None:
    message = sample(MetadataResponse, 12)  # some twenty in all
    assert is_long(message, 10)
    assert not is_long(message, 100)
