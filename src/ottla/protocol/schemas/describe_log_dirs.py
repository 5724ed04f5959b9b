"""DescribeLogDirs (API key 35; KIP-113, KIP-827)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, int32_array, int64, nullable_array, string


@message
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = int32_array()


@message
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic)


@message
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@message
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@message
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
