"""Versions that are offered, and how their frames differ, against what kio knows of Apache Kafka's definitions."""

from __future__ import annotations

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0

from ottla.protocol.api import (
    ADVERTISED_VERSIONS,
    API_VERSIONS,
    KNOWN_VERSIONS,
    ApiKey,
    is_flexible,
    request_header_version,
    response_header_version,
)
from tests.property.wire_strategies import API_AND_VERSION, IDS


@pytest.mark.parametrize(("api", "version"), API_AND_VERSION, ids=IDS)
def test_header_versions_are_those_of_kafka(api: ApiKey, version: int) -> None:
    request, response = load_request_schema(api, version), load_response_schema(api, version)
    assert is_flexible(api, version) == request.__flexible__
    assert request_header_version(api, version) == request.__header_schema__.__version__
    assert (response_header_version(api, version) == 0) == (response.__header_schema__ is ResponseHeaderV0)


def test_what_the_broker_serves_is_a_part_of_what_the_client_speaks() -> None:
    for api, (lowest, highest) in API_VERSIONS.items():
        assert lowest == KNOWN_VERSIONS[api].lowest
        assert highest <= KNOWN_VERSIONS[api].highest


def test_produce_is_advertised_from_version_0_for_old_librdkafka() -> None:
    assert ADVERTISED_VERSIONS[ApiKey.PRODUCE] == (0, 12)
    assert API_VERSIONS[ApiKey.PRODUCE].lowest == 3


def test_everything_else_is_advertised_as_it_is_answered() -> None:
    assert {api: v for api, v in ADVERTISED_VERSIONS.items() if api is not ApiKey.PRODUCE} == {
        api: v for api, v in API_VERSIONS.items() if api is not ApiKey.PRODUCE
    }


@pytest.mark.parametrize(("version", "is_in"), [(3, False), (4, True), (17, True), (18, False), (-1, False)])
def test_version_range_has_both_its_ends(version: int, is_in: bool) -> None:
    assert (version in API_VERSIONS[ApiKey.FETCH]) is is_in
