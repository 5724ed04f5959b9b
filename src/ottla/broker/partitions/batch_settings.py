"""What a topic's settings require of produced batches: why they are opened, and whether their records are checked."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.records.compression import Codec
from ottla.records.record_bounds import COMPILED, IN_PYTHON, RecordCheck
from ottla.storage.log_config import FOREVER, LogConfig

LOG_APPEND_TIME: Final = "LogAppendTime"
_AS_IT_CAME: Final = "producer"
# The library's greatest level does what Kafka's levels up to 17 do.
_LZ4_LEVEL_MAX: Final = 12
_ZSTD_LEVEL_MIN: Final = -7


class BatchOpening(NamedTuple):
    """Why a topic's batches are opened.  `codec` None: batches keep their own."""

    codec: Codec | None
    level: int | None
    requires_keys: bool
    # Bounds of the records' times around the broker's; both None where the broker's time is stamped.
    before_max_ms: int | None
    after_max_ms: int | None
    # Of the records of compressed batches; those of others are checked before.
    check_records: RecordCheck | None = None
    checks_compressed: bool = False

    @property
    def walks_always(self) -> bool:
        return self.requires_keys or self.before_max_ms is not None

    @property
    def opens_uncompressed(self) -> bool:
        return self.walks_always or self.codec not in (None, Codec.NONE)

    def target(self, codec: Codec) -> Codec:
        """The codec with which a batch of `codec` is stored."""
        return codec if self.codec is None else self.codec


def opening_of(config: LogConfig) -> BatchOpening | None:
    """What a topic's settings require, None when its batches need not be opened.

    The greatest timestamp of a batch is in its head, so the bound on future timestamps alone opens no batch.
    """
    codec, level = _codec_and_level(config)
    requires_keys = "compact" in config.cleanup_policy
    has_times = config.message_timestamp_type != LOG_APPEND_TIME
    before_max_ms = config.message_timestamp_before_max_ms
    bounds_past = has_times and before_max_ms != FOREVER
    checks_compressed = config.record_validation == "all"
    if codec is None and not requires_keys and not bounds_past and not checks_compressed:
        return None
    after_max_ms = config.message_timestamp_after_max_ms if has_times else None
    check = record_check_of(config)
    bound_ms = before_max_ms if bounds_past else None
    return BatchOpening(codec, level, requires_keys, bound_ms, after_max_ms, check, checks_compressed)


def record_check_of(config: LogConfig) -> RecordCheck | None:
    """Checks whether the records of a topic's batches can be read (`record.validation`); None: they are not checked."""
    if config.record_validation == "auto":
        return COMPILED
    return None if config.record_validation == "none" else COMPILED or IN_PYTHON


def _codec_and_level(config: LogConfig) -> tuple[Codec | None, int | None]:
    name = config.compression_type
    if name == _AS_IT_CAME:
        return None, None
    if name == "uncompressed":
        return Codec.NONE, None
    codec = Codec.from_name(name)
    levels = {
        Codec.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
        Codec.LZ4: min(config.compression_lz4_level, _LZ4_LEVEL_MAX),
        Codec.ZSTD: max(config.compression_zstd_level, _ZSTD_LEVEL_MIN),
    }
    return codec, levels.get(codec)
