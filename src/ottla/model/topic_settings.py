"""The settings of a topic: Apache Kafka 4.1's keys, and `flush.policy`.

A topic's own value wins; else the broker's setting of the same meaning, in the order of its synonyms; else the default.
Settings that are not honoured are kept and shown, because Kafka's tools and clients set them routinely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.model import broker_settings as broker
from ottla.model.limits import DAY_MS, GIB, HOUR_MS, INT64_MAX, KIB, MIB, MINUTE_MS
from ottla.model.setting import AnySetting, flag, int32, int64, number, word, words


class Synonym(NamedTuple):
    """A broker setting that is the default of a topic's: its value times `factor`."""

    setting: AnySetting
    factor: int = 1


CLEANUP_POLICY: Final = words(
    "cleanup.policy",
    ("delete",),
    "`delete` removes old segments, `compact` all but the newest value of each key; both may be given.",
    choices=("compact", "delete"),
)
MIN_CLEANABLE_DIRTY_RATIO: Final = number(
    "min.cleanable.dirty.ratio",
    0.5,
    "A log is cleaned when more than this ratio of it was never cleaned.",
    minimum=0,
    maximum=1,
)
MIN_COMPACTION_LAG_MS: Final = int64(
    "min.compaction.lag.ms", 0, "Younger records are not removed by compaction.", minimum=0
)
MAX_COMPACTION_LAG_MS: Final = int64(
    "max.compaction.lag.ms",
    INT64_MAX,
    "A compacted log's segment rolls, and is cleaned at any ratio, when its first batch is older.",
    minimum=1,
)
DELETE_RETENTION_MS: Final = int64(
    "delete.retention.ms",
    DAY_MS,
    "How long a tombstone (a record without a value) stays after the first clean that kept it.",
    minimum=0,
)
RETENTION_MS: Final = int64("retention.ms", 7 * DAY_MS, "Delete segments that are this old; -1 never.", minimum=-1)
RETENTION_BYTES: Final = int64(
    "retention.bytes", -1, "Delete the oldest segments of a partition that is larger; -1 never.", minimum=-1
)
FILE_DELETE_DELAY_MS: Final = int64(
    "file.delete.delay.ms", MINUTE_MS, "How long the files of a deleted segment stay on the disk.", minimum=0
)
SEGMENT_BYTES: Final = int32(
    "segment.bytes", GIB, "Roll to a new segment before the active one would pass this size.", minimum=14
)
SEGMENT_MS: Final = int64("segment.ms", 7 * DAY_MS, "Roll a segment that is this old.", minimum=1)
SEGMENT_JITTER_MS: Final = int64(
    "segment.jitter.ms", 0, "A random time up to this is subtracted from the age at which a segment rolls.", minimum=0
)
SEGMENT_INDEX_BYTES: Final = int32(
    "segment.index.bytes", 10 * MIB, "Roll a segment whose offset index reaches this size.", minimum=4
)
INDEX_INTERVAL_BYTES: Final = int32(
    "index.interval.bytes", 4 * KIB, "Bytes of a segment between two entries of its offset index.", minimum=0
)
FLUSH_POLICY: Final = word(
    "flush.policy",
    "ack",
    "When a record is stable, so that it is acknowledged and can be read: `ack`, `interval` or `os` "
    "(see `log.flush.policy`).",
    choices=("ack", "interval", "os"),
)
FLUSH_MESSAGES: Final = int64("flush.messages", INT64_MAX, "Flush after at most so many records.", minimum=1)
FLUSH_MS: Final = int64("flush.ms", INT64_MAX, "Flush after at most this time.", minimum=0)
MAX_MESSAGE_BYTES: Final = int32(
    "max.message.bytes", 1_048_588, "The largest record batch that is accepted, compressed as it was sent.", minimum=0
)
MESSAGE_TIMESTAMP_TYPE: Final = word(
    "message.timestamp.type",
    "CreateTime",
    "The source of a record's timestamp: the producer (CreateTime) or the broker (LogAppendTime).",
    choices=("CreateTime", "LogAppendTime"),
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = int64(
    "message.timestamp.before.max.ms", INT64_MAX, "A record with an older timestamp is refused.", minimum=0
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = int64(
    "message.timestamp.after.max.ms", HOUR_MS, "A record with a timestamp further in the future is refused.", minimum=0
)
MIN_INSYNC_REPLICAS: Final = int32(
    "min.insync.replicas", 1, "A produce with acks=all is refused while fewer replicas are in sync.", minimum=1
)
COMPRESSION_TYPE: Final = word(
    "compression.type",
    "producer",
    "How batches are stored: `producer`, as received; else with this codec: those that use another are "
    "decompressed and compressed again.",
    choices=broker.COMPRESSION_TYPES,
)
RECORD_VALIDATION: Final = word(
    "record.validation",
    broker.LOG_RECORD_VALIDATION.default,
    "Whose records are checked before a batch is taken (see `log.record.validation`).",
    choices=broker.RECORD_VALIDATIONS,
)
COMPRESSION_GZIP_LEVEL: Final = int32(
    "compression.gzip.level", -1, "For `compression.type=gzip`; -1 is the library's own.", minimum=-1, maximum=9
)
COMPRESSION_LZ4_LEVEL: Final = int32(
    "compression.lz4.level", 9, "For `compression.type=lz4`; levels above 12 equal 12.", minimum=1, maximum=17
)
COMPRESSION_ZSTD_LEVEL: Final = int32(
    "compression.zstd.level", 3, "For `compression.type=zstd`; levels below -7 equal -7.", minimum=-131072, maximum=22
)

UNCLEAN_LEADER_ELECTION_ENABLE: Final = flag(
    "unclean.leader.election.enable",
    False,
    "A replica that may lack acknowledged records may lead when none that has them all is live: they are lost then.",
)
FOLLOWER_THROTTLED_REPLICAS: Final = words(
    "follower.replication.throttled.replicas",
    (),
    "Replicas (`PARTITION:BROKER`; `*` for all) that are fetched no faster than `follower.replication.throttled.rate` "
    "of their broker while they are not in sync.",
)

_STORED: Final[tuple[AnySetting, ...]] = (
    words("leader.replication.throttled.replicas", (), "Followers alone are throttled (KIP-73).", honoured=False),
    flag("preallocate", False, "Segments are not preallocated.", honoured=False),
    int64("local.retention.bytes", -2, "For tiered storage.", honoured=False, minimum=-2),
    int64("local.retention.ms", -2, "For tiered storage.", honoured=False, minimum=-2),
    flag("remote.log.copy.disable", False, "For tiered storage.", honoured=False),
    flag("remote.log.delete.on.disable", False, "For tiered storage.", honoured=False),
    flag("remote.storage.enable", False, "Tiered storage is not offered.", honoured=False, choices=("false",)),
)

_HONOURED: Final[tuple[AnySetting, ...]] = (
    CLEANUP_POLICY,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    MAX_COMPACTION_LAG_MS,
    DELETE_RETENTION_MS,
    RETENTION_MS,
    RETENTION_BYTES,
    FILE_DELETE_DELAY_MS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    SEGMENT_JITTER_MS,
    SEGMENT_INDEX_BYTES,
    INDEX_INTERVAL_BYTES,
    FLUSH_POLICY,
    FLUSH_MESSAGES,
    FLUSH_MS,
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMESTAMP_TYPE,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    FOLLOWER_THROTTLED_REPLICAS,
    COMPRESSION_TYPE,
    RECORD_VALIDATION,
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_ZSTD_LEVEL,
)

TOPIC_SETTINGS: Final[Mapping[str, AnySetting]] = {setting.name: setting for setting in (*_HONOURED, *_STORED)}

# The first that is set applies; the last one's default equals the topic setting's.
SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    CLEANUP_POLICY.name: (Synonym(broker.LOG_CLEANUP_POLICY),),
    MIN_CLEANABLE_DIRTY_RATIO.name: (Synonym(broker.LOG_CLEANER_MIN_CLEANABLE_RATIO),),
    MIN_COMPACTION_LAG_MS.name: (Synonym(broker.LOG_CLEANER_MIN_COMPACTION_LAG_MS),),
    MAX_COMPACTION_LAG_MS.name: (Synonym(broker.LOG_CLEANER_MAX_COMPACTION_LAG_MS),),
    DELETE_RETENTION_MS.name: (Synonym(broker.LOG_CLEANER_DELETE_RETENTION_MS),),
    RETENTION_MS.name: (
        Synonym(broker.LOG_RETENTION_MS),
        Synonym(broker.LOG_RETENTION_MINUTES, MINUTE_MS),
        Synonym(broker.LOG_RETENTION_HOURS, HOUR_MS),
    ),
    RETENTION_BYTES.name: (Synonym(broker.LOG_RETENTION_BYTES),),
    FILE_DELETE_DELAY_MS.name: (Synonym(broker.LOG_SEGMENT_DELETE_DELAY_MS),),
    SEGMENT_BYTES.name: (Synonym(broker.LOG_SEGMENT_BYTES),),
    SEGMENT_MS.name: (Synonym(broker.LOG_ROLL_MS), Synonym(broker.LOG_ROLL_HOURS, HOUR_MS)),
    SEGMENT_JITTER_MS.name: (Synonym(broker.LOG_ROLL_JITTER_MS), Synonym(broker.LOG_ROLL_JITTER_HOURS, HOUR_MS)),
    SEGMENT_INDEX_BYTES.name: (Synonym(broker.LOG_INDEX_SIZE_MAX_BYTES),),
    INDEX_INTERVAL_BYTES.name: (Synonym(broker.LOG_INDEX_INTERVAL_BYTES),),
    FLUSH_POLICY.name: (Synonym(broker.LOG_FLUSH_POLICY),),
    FLUSH_MESSAGES.name: (Synonym(broker.LOG_FLUSH_INTERVAL_MESSAGES),),
    FLUSH_MS.name: (Synonym(broker.LOG_FLUSH_INTERVAL_MS), Synonym(broker.LOG_FLUSH_SCHEDULER_INTERVAL_MS)),
    MAX_MESSAGE_BYTES.name: (Synonym(broker.MESSAGE_MAX_BYTES),),
    MESSAGE_TIMESTAMP_TYPE.name: (Synonym(broker.LOG_MESSAGE_TIMESTAMP_TYPE),),
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS.name: (Synonym(broker.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS),),
    MESSAGE_TIMESTAMP_AFTER_MAX_MS.name: (Synonym(broker.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS),),
    MIN_INSYNC_REPLICAS.name: (Synonym(broker.MIN_INSYNC_REPLICAS),),
    UNCLEAN_LEADER_ELECTION_ENABLE.name: (Synonym(broker.UNCLEAN_LEADER_ELECTION_ENABLE),),
    COMPRESSION_TYPE.name: (Synonym(broker.COMPRESSION_TYPE),),
    RECORD_VALIDATION.name: (Synonym(broker.LOG_RECORD_VALIDATION),),
    COMPRESSION_GZIP_LEVEL.name: (Synonym(broker.COMPRESSION_GZIP_LEVEL),),
    COMPRESSION_LZ4_LEVEL.name: (Synonym(broker.COMPRESSION_LZ4_LEVEL),),
    COMPRESSION_ZSTD_LEVEL.name: (Synonym(broker.COMPRESSION_ZSTD_LEVEL),),
}
