"""ApiVersions (key 18), v0-v4.

Lists the APIs and versions that are offered: `ADVERTISED_VERSIONS`, the same to every client, and the features of the
cluster (v3+): with a finalized `transaction.version` of 2 clients use transactions of the second protocol.  What is
supported is listed from v4 on: the parsers of older clients reject its least level, 0.  An unknown version is answered
in the format of v0 with UNSUPPORTED_VERSION and the one entry of ApiVersions itself, from which every client learns
which version to use (KIP-511).  From v3 on an ill-formed client software name or version is answered with
INVALID_REQUEST and no entries.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.coordination.features import SUPPORTED_FEATURES
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ADVERTISED_VERSIONS, ApiKey
from ottla.protocol.schemas.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# KIP-511: letters, digits, dashes and dots, beginning and ending with a letter or digit.
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z", re.ASCII)
_SOFTWARE_FROM_VERSION: Final = 3
_LEAST_LEVEL: Final = 0
_LEAST_LEVEL_FROM_VERSION: Final = 4


async def handle(request: ApiVersionsRequest, context: BrokerContext, call: Call) -> ApiVersionsResponse:
    if call.api_version >= _SOFTWARE_FROM_VERSION and not (
        _SOFTWARE_NAME.match(request.client_software_name) and _SOFTWARE_NAME.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    features = context.features
    supported = SUPPORTED_FEATURES.items() if call.api_version >= _LEAST_LEVEL_FROM_VERSION else ()
    return ApiVersionsResponse(
        api_keys=[_entry(api) for api in sorted(ADVERTISED_VERSIONS)],
        supported_features=[SupportedFeatureKey(name, _LEAST_LEVEL, level) for name, level in supported],
        finalized_features_epoch=features.epoch,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in features.finalized.items()],
    )


def unsupported_version_response() -> ApiVersionsResponse:
    """The answer to an unknown version; it is written as v0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(ApiKey.API_VERSIONS)])


def _entry(api: ApiKey) -> ApiVersion:
    return ApiVersion(api, *ADVERTISED_VERSIONS[api])
