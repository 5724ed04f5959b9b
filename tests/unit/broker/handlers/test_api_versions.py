from __future__ import annotations

import pytest

from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.coordination.features import FeaturesView
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ADVERTISED_VERSIONS, ApiKey
from ottla.protocol.messages import encode_response
from ottla.protocol.schemas.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.unit.broker.handlers.small_broker import SmallBroker

LIBRDKAFKA = ApiVersionsRequest("librdkafka", "2.11.1")


@pytest.mark.parametrize("version", range(5))
async def test_every_offered_version_is_listed_and_from_v4_on_what_is_supported(version: int) -> None:
    response = await SmallBroker().ask(ApiKey.API_VERSIONS, version, LIBRDKAFKA, ApiVersionsResponse)
    assert response == ApiVersionsResponse(
        api_keys=[ApiVersion(api, *ADVERTISED_VERSIONS[api]) for api in sorted(ADVERTISED_VERSIONS)],
        supported_features=[SupportedFeatureKey("transaction.version", 0, 2)] if version >= 4 else [],
    )


@pytest.mark.parametrize("version", [3, 4])
async def test_features_that_the_cluster_has_finalized_are_listed(version: int) -> None:
    broker = SmallBroker()
    broker.features = FeaturesView(7, {"transaction.version": 2})
    response = await broker.ask(ApiKey.API_VERSIONS, version, LIBRDKAFKA, ApiVersionsResponse)
    assert response.finalized_features_epoch == 7
    assert response.finalized_features == [FinalizedFeatureKey("transaction.version", 2, 2)]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    "software", [("", "1"), ("name", ""), ("-name", "1"), ("name", "1."), ("na me", "1"), ("name", "1\n"), ("é", "1")]
)
async def test_ill_formed_client_software_is_refused(version: int, software: tuple[str, str]) -> None:
    request = ApiVersionsRequest(*software)
    response = await SmallBroker().ask(ApiKey.API_VERSIONS, version, request, ApiVersionsResponse)
    assert response == ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_client_software_is_not_looked_at_before_version_3(version: int) -> None:
    response = await SmallBroker().ask(ApiKey.API_VERSIONS, version, ApiVersionsRequest(), ApiVersionsResponse)
    assert response.error_code == ErrorCode.NONE


def test_unknown_version_is_answered_with_one_entry_in_16_bytes() -> None:
    body = encode_response(ApiKey.API_VERSIONS, 0, unsupported_version_response())
    # With the correlation id these are the 16 bytes that Apache Kafka sends.
    assert body == bytes.fromhex("0023 00000001 0012 0000 0004")
