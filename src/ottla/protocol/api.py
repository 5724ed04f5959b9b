"""The table of the APIs: numbers, offered versions, and how their frames differ."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Self


class VersionRange(NamedTuple):
    """Both ends inclusive."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


class ApiKey(IntEnum):
    """The number that opens each request (Kafka protocol guide, "Api Keys").

    Each row: the number, the lowest and the highest version that the code reads and writes, and the first version with
    compact lengths and tagged fields (KIP-482).  The client speaks all versions, the broker serves those of
    `API_VERSIONS`.  By its name an API has its messages in `protocol/schemas` and its handler in `broker/handlers`.
    """

    versions: VersionRange
    flexible_from: int

    # The defaults are for `ApiKey(number)`, which finds a member and makes none.
    def __new__(cls, number: int, lowest: int = 0, highest: int = 0, flexible_from: int = 0) -> Self:
        api = int.__new__(cls, number)
        api._value_ = number
        api.versions = VersionRange(lowest, highest)
        api.flexible_from = flexible_from
        return api

    PRODUCE = 0, 3, 12, 9
    FETCH = 1, 4, 17, 12
    LIST_OFFSETS = 2, 1, 9, 6
    METADATA = 3, 0, 12, 9
    OFFSET_COMMIT = 8, 2, 9, 8
    OFFSET_FETCH = 9, 1, 9, 6
    FIND_COORDINATOR = 10, 0, 6, 3
    JOIN_GROUP = 11, 0, 9, 6
    HEARTBEAT = 12, 0, 4, 4
    LEAVE_GROUP = 13, 0, 5, 4
    SYNC_GROUP = 14, 0, 5, 4
    DESCRIBE_GROUPS = 15, 0, 6, 5
    LIST_GROUPS = 16, 0, 5, 3
    SASL_HANDSHAKE = 17, 0, 1, 2
    API_VERSIONS = 18, 0, 4, 3
    CREATE_TOPICS = 19, 2, 7, 5
    DELETE_TOPICS = 20, 1, 6, 4
    DELETE_RECORDS = 21, 0, 2, 2
    INIT_PRODUCER_ID = 22, 0, 5, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 2, 4, 4
    ADD_PARTITIONS_TO_TXN = 24, 0, 5, 3
    ADD_OFFSETS_TO_TXN = 25, 0, 4, 3
    END_TXN = 26, 0, 5, 3
    WRITE_TXN_MARKERS = 27, 1, 2, 1
    TXN_OFFSET_COMMIT = 28, 0, 5, 3
    DESCRIBE_ACLS = 29, 1, 3, 2
    CREATE_ACLS = 30, 1, 3, 2
    DELETE_ACLS = 31, 1, 3, 2
    DESCRIBE_CONFIGS = 32, 1, 4, 4
    ALTER_CONFIGS = 33, 0, 2, 2
    DESCRIBE_LOG_DIRS = 35, 1, 4, 2
    SASL_AUTHENTICATE = 36, 0, 2, 2
    CREATE_PARTITIONS = 37, 0, 3, 2
    DELETE_GROUPS = 42, 0, 2, 2
    ELECT_LEADERS = 43, 0, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0
    OFFSET_DELETE = 47, 0, 0, 1
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0
    DESCRIBE_CLUSTER = 60, 0, 2, 0
    DESCRIBE_PRODUCERS = 61, 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0
    LIST_TRANSACTIONS = 66, 0, 2, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1, 0
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, 0
    LIST_CONFIG_RESOURCES = 74, 0, 1, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0

    @property
    def module_name(self) -> str:
        """Of its messages in `protocol/schemas`, and of its handler in `broker/handlers`."""
        return self.name.lower()

    @property
    def message_name(self) -> str:
        """As the protocol guide writes it: the prefix of the classes `...Request` and `...Response`."""
        return "".join(part.title() for part in self.name.split("_"))


# The versions that the code reads and writes.
KNOWN_VERSIONS: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType({api: api.versions for api in ApiKey})

# The versions that the broker serves.
API_VERSIONS: Final = KNOWN_VERSIONS

# The versions in ApiVersions.  Produce starts at 0 although no client sends below 3: librdkafka before 2.11.1 (kcat)
# tests the range 0..0 before it compresses, and silently sends plain batches when it is not offered.  Kafka 4 offers 0
# too.
ADVERTISED_VERSIONS: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {**API_VERSIONS, ApiKey.PRODUCE: VersionRange(0, API_VERSIONS[ApiKey.PRODUCE].highest)}
)

FLEXIBLE_FROM: Final[Mapping[ApiKey, int]] = MappingProxyType({api: api.flexible_from for api in ApiKey})


def is_flexible(api: ApiKey, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields."""
    return version >= FLEXIBLE_FROM[api]


def request_header_version(api: ApiKey, version: int) -> int:
    """2 (with tagged fields) for flexible versions, else 1.  Version 0 belongs to APIs that are not offered."""
    return 2 if is_flexible(api, version) else 1


def response_header_version(api: ApiKey, version: int) -> int:
    """1 (with tagged fields) for flexible versions, else 0.

    ApiVersions always answers with 0: its reader does not know the broker's versions yet (KIP-511).
    """
    return 1 if is_flexible(api, version) and api is not ApiKey.API_VERSIONS else 0
