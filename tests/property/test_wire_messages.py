"""The codec against kio's, which is generated from Apache Kafka's message definitions, for every offered version."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_request, decode_response, encode_request, encode_response
from tests.property.property_settings import examples_max
from tests.property.wire_strategies import (
    API_AND_VERSION,
    IDS,
    assert_same,
    kio_read,
    kio_write,
    requests,
    responses,
)

EVERY_VERSION = pytest.mark.parametrize(("api", "version"), API_AND_VERSION, ids=IDS)
FEW = settings(max_examples=examples_max(25), suppress_health_check=[HealthCheck.too_slow])


@EVERY_VERSION
@FEW
@given(data=st.data())
def test_request_reads_the_same_in_kio_and_here(api: ApiKey, version: int, data: st.DataObject) -> None:
    message = data.draw(requests(api, version))
    body = encode_request(api, version, message)
    theirs = kio_read(api, version, body, is_request=True)
    assert_same(message, theirs, version)
    assert kio_write(theirs) == body
    assert decode_request(api, version, body) == message


@EVERY_VERSION
@FEW
@given(data=st.data())
def test_response_reads_the_same_in_kio_and_here(api: ApiKey, version: int, data: st.DataObject) -> None:
    message = data.draw(responses(api, version))
    body = encode_response(api, version, message)
    theirs = kio_read(api, version, body, is_request=False)
    assert_same(message, theirs, version)
    assert kio_write(theirs) == body
    assert decode_response(api, version, body) == message
