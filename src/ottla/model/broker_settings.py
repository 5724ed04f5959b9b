"""The broker's settings: Kafka's names, types and defaults (Apache Kafka 4.1), and some of our own.

Only settings that change what this broker does are here.  Kafka's other keys are known by name (setting_sources.py), so
that the broker starts with a file written for Apache Kafka and reports the keys that it ignores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

from ottla.model.errors import ConfigError
from ottla.model.http_settings import ADMIN_ALLOWED_HOSTS, HTTP_SETTINGS
from ottla.model.limits import DAY_MS, FLOAT64_MAX, GIB, INT32_MAX, INT64_MAX, KIB, MIB, MINUTE_MS, SECOND_MS
from ottla.model.security_settings import AUTHORIZER_SETTINGS, INTER_BROKER_SETTINGS, LOGIN_SETTINGS, TLS_SETTINGS
from ottla.model.setting import (
    AnySetting,
    flag,
    int32,
    int64,
    number,
    optional_int32,
    optional_int64,
    optional_text,
    word,
    words,
)
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.model.zookeeper_settings import ZOOKEEPER_SECURITY_SETTINGS

NODE_ID: Final = int32(
    "node.id",
    0,
    "The id of this broker; a data directory keeps its id.  A new directory of a cluster has no default.",
    minimum=0,
    aliases=("broker.id",),
)
BROKER_RACK: Final = optional_text("broker.rack", "The rack that Metadata and DescribeCluster show for this broker.")
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTOR_CLASS: Final = word(
    "replica.selector.class",
    LEADER_SELECTOR,
    "With RackAwareReplicaSelector a consumer that gives its `client.rack` reads from the replica in that rack.",
    choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
)
LOG_DIRS: Final = optional_text(
    "log.dirs", "The data directory, when `--data-dir` is not given.  One directory.", aliases=("log.dir",)
)
LOG_DIR_RESERVE_BYTES: Final = int64(
    "log.dir.reserve.bytes",
    32 * MIB,
    "Room in the data directory (`reserve.bin`) that a full disk leaves to deletions, settings, committed offsets and "
    "starts; at most a sixteenth of the file system; 0 for none.",
    minimum=0,
)
LOG_DIR_LOW_BYTES: Final = int64(
    "log.dir.low.bytes",
    5 * GIB,
    "`disk.low` is logged when less is free; at most a tenth of the file system; 0 for never.",
    minimum=0,
)

ZOOKEEPER_CONNECT: Final = optional_text(
    "zookeeper.connect",
    "The ZooKeeper that the brokers of a cluster share: `host:port,host:port/chroot`.  Unset: a standalone broker.",
)
TREE_SOCKET: Final = optional_text(
    "tree.socket",
    "The Unix socket of the process that holds the tree of a cluster on one machine, as `ottla cluster up` and `ottla "
    "serve --processes` start it; instead of `zookeeper.connect`.",
)
ZOOKEEPER_SESSION_TIMEOUT_MS: Final = int32(
    "zookeeper.session.timeout.ms",
    6 * SECOND_MS,
    "A broker that ZooKeeper (or the holder of `tree.socket`) has not heard for this long is dead to the others.  "
    "Kafka's default was 18000.",
    minimum=500,
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS: Final = optional_int32(
    "zookeeper.connection.timeout.ms",
    "How long a start waits for ZooKeeper.  Unset: as long as it takes.",
    minimum=1,
)
CONTROLLED_SHUTDOWN_ENABLE: Final = flag(
    "controlled.shutdown.enable", True, "A broker of a cluster that stops hands its partitions over first."
)

LISTENERS: Final = word(
    "listeners",
    "PLAINTEXT://127.0.0.1:9092",
    "Addresses to listen on, `NAME://host:port` each.  Kafka's default is every interface; Ottla's is loopback.",
)
ADVERTISED_LISTENERS: Final = optional_text(
    "advertised.listeners", "The address that clients connect to.  Unset: the one that the client reached."
)
SHARED_LISTENERS: Final = optional_text(
    "shared.listeners",
    "Further addresses of some `listeners`, by their names, that other brokers of this machine and user have too: the "
    "kernel spreads connections over them (SO_REUSEPORT).  `ottla serve --processes` sets it.",
)
LISTENER_SECURITY_PROTOCOL_MAP: Final = word(
    "listener.security.protocol.map",
    "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "The protocol of each listener's name.",
)
CONTROLLER_LISTENER_NAMES: Final = words(
    "controller.listener.names", (), "Listeners of Apache Kafka's controller; they are ignored."
)
SOCKET_REQUEST_MAX_BYTES: Final = int32(
    "socket.request.max.bytes", 100 * MIB, "A larger request closes its connection.", minimum=1
)
SOCKET_SEND_BUFFER_BYTES: Final = int32(
    "socket.send.buffer.bytes", 100 * KIB, "SO_SNDBUF of accepted sockets; -1 leaves it to the system.", minimum=-1
)
SOCKET_RECEIVE_BUFFER_BYTES: Final = int32(
    "socket.receive.buffer.bytes", 100 * KIB, "SO_RCVBUF of accepted sockets; -1 leaves it to the system.", minimum=-1
)
CONNECTIONS_MAX_IDLE_MS: Final = int64(
    "connections.max.idle.ms",
    10 * MINUTE_MS,
    "Idle connections are closed after this time; -1 never.",
    minimum=-1,
)
MAX_CONNECTIONS: Final = int32(
    "max.connections",
    10_000,
    "Connections above this count are closed at once.  Half of the limit of open files lowers it.  Each takes 9 KB "
    "while it is idle, and up to 70 KB while it sends.",
    minimum=0,
)
MAX_CONNECTIONS_PER_IP: Final = int32(
    "max.connections.per.ip",
    INT32_MAX,
    "Connections of one address above this count are closed at once; those of all listeners count.",
    minimum=0,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = words(
    "max.connections.per.ip.overrides",
    (),
    "Other counts for some addresses: `10.0.0.5:200,10.0.0.6:0`.  Names are not looked up.",
)
QUOTA_WINDOW_NUM: Final = int32(
    "quota.window.num", 11, "Samples over which the rates of clients are measured ([quotas](quotas.md)).", minimum=1
)
QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "quota.window.size.seconds", 1, "The length of such a sample.", minimum=1, maximum=INT32_MAX // 1_000
)
CONTROLLER_QUOTA_WINDOW_NUM: Final = int32(
    "controller.quota.window.num",
    11,
    "The samples of controller_mutation_rate: a burst may take what it allows in all of them.",
    minimum=1,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "controller.quota.window.size.seconds", 1, "The length of such a sample.", minimum=1, maximum=INT32_MAX // 1_000
)
QUEUED_MAX_REQUEST_BYTES: Final = int64(
    "queued.max.request.bytes",
    -1,
    "Memory for large requests being received on all connections of a listener; -1 is 512 MiB.",
    minimum=-1,
)
SOCKET_RECEIVE_MIN_BYTES_PER_SECOND: Final = int32(
    "socket.receive.min.bytes.per.second",
    16 * KIB,
    "A client that sends a request more slowly, over 30 s, is disconnected; over 5 s while others wait for the memory.",
    minimum=0,
)
REQUEST_SLOW_MS: Final = int32(
    "request.slow.ms",
    200,
    "A request that takes longer gets a line in the log, `request.slow`, at most one a second; 0 is never.",
    minimum=0,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = int32(
    "max.incremental.fetch.session.cache.slots",
    1_000,
    "The most fetch sessions; a client without one names all its partitions in each fetch.",
    minimum=0,
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Final = int32(
    "max.request.partition.size.limit",
    2_000,
    "The most partitions in one response to DescribeTopicPartitions.",
    minimum=1,
)
FETCH_MAX_BYTES: Final = int32("fetch.max.bytes", 55 * MIB, "The most bytes in one fetch response.", minimum=1024)

NUM_PARTITIONS: Final = int32("num.partitions", 1, "The partition count of a topic created without one.", minimum=1)
DEFAULT_REPLICATION_FACTOR: Final = int32(
    "default.replication.factor", 1, "The replication factor of a topic created without one.", minimum=1, maximum=32767
)
AUTO_CREATE_TOPICS_ENABLE: Final = flag(
    "auto.create.topics.enable", True, "A metadata request for an unknown topic creates the topic."
)
MAX_AUTO_CREATE_TOPICS_PER_MINUTE: Final = int32(
    "max.auto.create.topics.per.minute",
    600,
    "The most topics that the metadata requests of one connection create in a minute; -1 is any number.",
    minimum=-1,
)
MAX_BROKER_PARTITIONS: Final = int32(
    "max.broker.partitions",
    INT32_MAX,
    "The most partitions that this broker takes from creations.  The limit of open files lowers it.",
    minimum=1,
)
DELETE_TOPIC_ENABLE: Final = flag("delete.topic.enable", True, "Topics can be deleted.")
MIN_INSYNC_REPLICAS: Final = int32(
    "min.insync.replicas", 1, "A produce with acks=all is refused while fewer replicas are in sync.", minimum=1
)
REPLICA_LAG_TIME_MAX_MS: Final = int64(
    "replica.lag.time.max.ms",
    30_000,
    "A replica that has not had the leader's whole log for this long leaves the in-sync replicas.",
    minimum=1,
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = flag(
    "unclean.leader.election.enable",
    False,
    "A replica that may lack acknowledged records may lead when none that has them all is live: they are lost then.",
)
AUTO_LEADER_REBALANCE_ENABLE: Final = flag(
    "auto.leader.rebalance.enable", True, "Replicas that are assigned first become leaders again when they are in sync."
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = int64(
    "leader.imbalance.check.interval.seconds",
    300,
    "How often a broker looks whether others lead the partitions that it should.",
    minimum=1,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = int32(
    "leader.imbalance.per.broker.percentage",
    10,
    "A broker takes its partitions back when others lead more than this percentage of them.",
    minimum=0,
    maximum=100,
)
MESSAGE_MAX_BYTES: Final = int32(
    "message.max.bytes", 1_048_588, "The largest record batch that is accepted, compressed as it was sent.", minimum=0
)
RECORD_VALIDATIONS: Final = ("auto", "none", "uncompressed", "all")
LOG_RECORD_VALIDATION: Final = word(
    "log.record.validation",
    "auto",
    "Batches whose records are checked to be such as any client can read, before they are taken: `none`, "
    "`uncompressed`, or `all`, which decompresses the others; `auto` is `uncompressed` where the compiled check is "
    "there, else `none`.",
    choices=RECORD_VALIDATIONS,
)
COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
COMPRESSION_TYPE: Final = word(
    "compression.type",
    "producer",
    "How batches are stored: `producer`, as received; else with this codec: those that use another are "
    "decompressed and compressed again.",
    choices=COMPRESSION_TYPES,
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

LOG_SEGMENT_BYTES: Final = int32(
    "log.segment.bytes", GIB, "Roll to a new segment before the active one would pass this size.", minimum=14
)
LOG_ROLL_MS: Final = optional_int64(
    "log.roll.ms", "Roll a segment that is this old; wins over `log.roll.hours`.", minimum=1
)
LOG_ROLL_HOURS: Final = int32("log.roll.hours", 168, "Roll a segment that is this old.", minimum=1)
LOG_ROLL_JITTER_MS: Final = optional_int64(
    "log.roll.jitter.ms", "A random time up to this is subtracted from the age at which a segment rolls.", minimum=0
)
LOG_ROLL_JITTER_HOURS: Final = int32("log.roll.jitter.hours", 0, "The same in hours.", minimum=0)
LOG_INDEX_INTERVAL_BYTES: Final = int32(
    "log.index.interval.bytes", 4 * KIB, "Bytes of a segment between two entries of its offset index.", minimum=0
)
LOG_INDEX_SIZE_MAX_BYTES: Final = int32(
    "log.index.size.max.bytes", 10 * MIB, "Roll a segment whose offset index reaches this size.", minimum=4
)
LOG_MESSAGE_TIMESTAMP_TYPE: Final = word(
    "log.message.timestamp.type",
    "CreateTime",
    "The source of a record's timestamp: the producer (CreateTime) or the broker (LogAppendTime).",
    choices=("CreateTime", "LogAppendTime"),
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = int64(
    "log.message.timestamp.before.max.ms", INT64_MAX, "A record with an older timestamp is refused.", minimum=0
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = int64(
    "log.message.timestamp.after.max.ms",
    60 * MINUTE_MS,
    "A record with a timestamp further in the future is refused.",
    minimum=0,
)
PRODUCER_ID_EXPIRATION_MS: Final = int32(
    "producer.id.expiration.ms",
    DAY_MS,
    "The state of an idempotent producer is dropped after this time without a batch.",
    minimum=1,
)

LOG_FLUSH_POLICY: Final = word(
    "log.flush.policy",
    "ack",
    "When a record is stable, so that it is acknowledged and can be read: `ack` = flushed to the disk at once; "
    "`interval` = flushed by count or time, as in the paper; `os` = written to the page cache, as in Apache Kafka.",
    choices=("ack", "interval", "os"),
)
LOG_FLUSH_INTERVAL_MESSAGES: Final = int64(
    "log.flush.interval.messages",
    INT64_MAX,
    "Flush a partition after at most so many records.  Policy `interval` takes 10,000 unless this is set.",
    minimum=1,
)
LOG_FLUSH_INTERVAL_MS: Final = optional_int64(
    "log.flush.interval.ms",
    "Flush a partition after at most this time.  Policy `interval` takes 1,000 unless this is set.",
    minimum=0,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS: Final = int64(
    "log.flush.scheduler.interval.ms", INT64_MAX, "Used for `log.flush.interval.ms` when that is unset.", minimum=0
)

REPLICA_FETCH_WAIT_MAX_MS: Final = int32(
    "replica.fetch.wait.max.ms", 500, "How long a follower's fetch waits for records at its leader.", minimum=0
)
REPLICA_FETCH_MIN_BYTES: Final = int32(
    "replica.fetch.min.bytes", 1, "A follower's fetch waits for so many bytes of records.", minimum=0
)
REPLICA_FETCH_MAX_BYTES: Final = int32(
    "replica.fetch.max.bytes", MIB, "The most bytes that a follower's fetch takes of one partition.", minimum=0
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = int32(
    "replica.fetch.response.max.bytes", 10 * MIB, "The most bytes of one response to a follower's fetch.", minimum=0
)
REPLICA_FETCH_BACKOFF_MS: Final = int32(
    "replica.fetch.backoff.ms",
    1 * SECOND_MS,
    "A follower whose fetches fail waits up to this time between them; the first waits are shorter.",
    minimum=0,
)
REPLICA_SOCKET_TIMEOUT_MS: Final = int32(
    "replica.socket.timeout.ms",
    30 * SECOND_MS,
    "A connection to another broker that is not made, or a request that is not answered, fails after this time.",
    minimum=1,
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = int64(
    "replica.high.watermark.checkpoint.interval.ms",
    5_000,
    "The interval at which high watermarks are recorded, so that a restarted replica begins with them.",
    minimum=1,
)

LOG_CLEANUP_POLICY: Final = words(
    "log.cleanup.policy",
    ("delete",),
    "`delete` removes old segments, `compact` all but the newest value of each key; both may be given.",
    choices=("compact", "delete"),
)
LOG_RETENTION_MS: Final = optional_int64(
    "log.retention.ms", "Delete segments that are this old; wins over minutes and hours; -1 never.", minimum=-1
)
LOG_RETENTION_MINUTES: Final = optional_int32(
    "log.retention.minutes", "The same in minutes; wins over hours.", minimum=-1
)
LOG_RETENTION_HOURS: Final = int32("log.retention.hours", 168, "The same in hours: seven days.", minimum=-1)
LOG_RETENTION_BYTES: Final = int64(
    "log.retention.bytes", -1, "Delete the oldest segments of a partition that is larger; -1 never.", minimum=-1
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = int64(
    "log.retention.check.interval.ms",
    5 * MINUTE_MS,
    "The interval of retention checks; the first one comes after 30 s, or sooner where this is less.",
    minimum=1,
)
LOG_SEGMENT_DELETE_DELAY_MS: Final = int64(
    "log.segment.delete.delay.ms",
    60 * SECOND_MS,
    "How long the files of a deleted segment stay on the disk.",
    minimum=0,
)

GROUP_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.min.session.timeout.ms", 6 * SECOND_MS, "The shortest session time-out that a member may request.", minimum=1
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.max.session.timeout.ms", 30 * MINUTE_MS, "The longest session time-out that a member may request.", minimum=1
)
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = int32(
    "group.initial.rebalance.delay.ms",
    3 * SECOND_MS,
    "How long an empty group waits for more members before its first generation.",
    minimum=0,
)
GROUP_MAX_SIZE: Final = int32("group.max.size", INT32_MAX, "The most members of a classic group.", minimum=1)
GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = int32(
    "group.consumer.session.timeout.ms", 45 * SECOND_MS, "The session time-out of a consumer group's member.", minimum=1
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.consumer.heartbeat.interval.ms",
    5 * SECOND_MS,
    "The heartbeat interval of a consumer group's member.",
    minimum=1,
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.consumer.min.session.timeout.ms",
    45 * SECOND_MS,
    "The shortest session time-out that can be set for a consumer group (`consumer.session.timeout.ms`).",
    minimum=1,
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.consumer.max.session.timeout.ms", MINUTE_MS, "The longest one.", minimum=1
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.consumer.min.heartbeat.interval.ms",
    5 * SECOND_MS,
    "The shortest interval that can be set for a consumer group (`consumer.heartbeat.interval.ms`).",
    minimum=1,
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.consumer.max.heartbeat.interval.ms", 15 * SECOND_MS, "The longest one.", minimum=1
)
GROUP_CONSUMER_MAX_SIZE: Final = int32(
    "group.consumer.max.size", INT32_MAX, "The most members of a consumer group.", minimum=1
)
GROUP_CONSUMER_ASSIGNORS: Final = words(
    "group.consumer.assignors",
    ("uniform", "range"),
    "The assignors that consumer groups may use; the first is used when no member requests one.",
    choices=("uniform", "range"),
)
OFFSET_METADATA_MAX_BYTES: Final = int32(
    "offset.metadata.max.bytes", 4 * KIB, "The largest metadata that may be committed with an offset.", minimum=0
)
OFFSETS_RETENTION_MINUTES: Final = int32(
    "offsets.retention.minutes",
    7 * 24 * 60,
    "Offsets of a group without members are deleted after this time.",
    minimum=1,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = int64(
    "offsets.retention.check.interval.ms", 10 * MINUTE_MS, "The interval of checks for expired offsets.", minimum=1
)
OFFSETS_TOPIC_NUM_PARTITIONS: Final = int32(
    "offsets.topic.num.partitions",
    50,
    "Partitions of `__consumer_offsets` when it is created; a group's id maps it to one of them.",
    minimum=1,
    maximum=10_000,
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = int32(
    "offsets.topic.replication.factor",
    3,
    "Replicas of `__consumer_offsets` when it is created: groups wait until as many brokers are live.  "
    "A standalone broker has one.",
    minimum=1,
    maximum=32767,
)
OFFSETS_TOPIC_SEGMENT_BYTES: Final = int32(
    "offsets.topic.segment.bytes",
    100 * MIB,
    "`segment.bytes` of `__consumer_offsets` when it is created.",
    minimum=1024,
)
OFFSETS_LOAD_BUFFER_SIZE: Final = int32(
    "offsets.load.buffer.size", 5 * MIB, "Bytes of `__consumer_offsets` read at once while groups load.", minimum=1
)

TRANSACTION_MAX_TIMEOUT_MS: Final = int32(
    "transaction.max.timeout.ms",
    15 * MINUTE_MS,
    "The longest `transaction.timeout.ms` that a producer may have.",
    minimum=1,
)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = int32(
    "transactional.id.expiration.ms",
    7 * 24 * 60 * MINUTE_MS,
    "A transactional id without a transaction is forgotten after this time.",
    minimum=1,
)
TRANSACTIONAL_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = int32(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    60 * MINUTE_MS,
    "The interval of checks for transactional ids that have expired.",
    minimum=1,
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = int32(
    "transaction.state.log.num.partitions",
    50,
    "Partitions of `__transaction_state` when it is created; a transactional id maps to one of them.",
    minimum=1,
    maximum=10_000,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = int32(
    "transaction.state.log.replication.factor",
    3,
    "Replicas of `__transaction_state` when it is created: transactions wait until as many brokers are live.  "
    "A standalone broker has one.",
    minimum=1,
    maximum=32767,
)
TRANSACTION_STATE_LOG_MIN_ISR: Final = int32(
    "transaction.state.log.min.isr",
    2,
    "`min.insync.replicas` of `__transaction_state` when it is created; 1 where it has one replica.",
    minimum=1,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Final = int32(
    "transaction.state.log.segment.bytes",
    100 * MIB,
    "`segment.bytes` of `__transaction_state` when it is created.",
    minimum=1024,
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE: Final = int32(
    "transaction.state.log.load.buffer.size",
    5 * MIB,
    "Bytes of `__transaction_state` read at once while transactional ids load.",
    minimum=1,
)

LOG_CLEANER_ENABLE: Final = flag("log.cleaner.enable", True, "Compacted topics are cleaned.")
LOG_CLEANER_BACKOFF_MS: Final = int64(
    "log.cleaner.backoff.ms", 15 * SECOND_MS, "How long the cleaner pauses when there is nothing to clean.", minimum=0
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = int64(
    "log.cleaner.dedupe.buffer.size",
    128 * MIB,
    "Memory for the newest offsets of keys, 32 bytes a key.  A clean that fills it ends; the next one continues.",
    minimum=1024,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND: Final = number(
    "log.cleaner.io.max.bytes.per.second",
    FLOAT64_MAX,
    "The most bytes per second that a clean reads and writes.",
    minimum=1,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = number(
    "log.cleaner.min.cleanable.ratio",
    0.5,
    "A log is cleaned when more than this ratio of it was never cleaned.",
    minimum=0,
    maximum=1,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = int64(
    "log.cleaner.min.compaction.lag.ms", 0, "Younger records are not removed by compaction.", minimum=0
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = int64(
    "log.cleaner.max.compaction.lag.ms",
    INT64_MAX,
    "A segment rolls, and is cleaned at any ratio, when its first batch is older.",
    minimum=1,
)
LOG_CLEANER_DELETE_RETENTION_MS: Final = int64(
    "log.cleaner.delete.retention.ms",
    DAY_MS,
    "How long a tombstone (a record without a value) stays after the first clean that kept it.",
    minimum=0,
)

AUDIT_ENABLE: Final = flag(
    "audit.enable",
    False,
    "A process beside the broker counts the records of the partitions that the broker leads, by event-time window, "
    "and writes the counts to the topic `ottla-audit`.  For all brokers of a cluster, or for none.",
)
AUDIT_WINDOW_MS: Final = int32(
    "audit.window.ms", DEFAULT_WINDOW_MS, "The size of the windows by which it counts.", minimum=1, maximum=DAY_MS
)
AUDIT_INTERVAL_MS: Final = int32(
    "audit.interval.ms", 10 * SECOND_MS, "The interval at which it writes its counts.", minimum=100
)
SCHEMA_REGISTRY_LISTENERS: Final = optional_text(
    "schema.registry.listeners",
    "Serve a schema registry there, `http://host:port` or `https://host:port`, in a process beside the broker.  Unset: "
    "none.",
)
SCHEMA_REGISTRY_TOPIC: Final = word(
    "schema.registry.topic",
    "_schemas",
    "The compacted topic of the schemas.",
)
SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR: Final = optional_int32(
    "schema.registry.topic.replication.factor",
    "The replicas that this topic is made with; the registry waits for so many brokers.  Unset: as many as there are "
    "brokers at that moment, 3 at most.",
    minimum=1,
)
SCHEMA_REGISTRY_ADVERTISED_URL: Final = optional_text(
    "schema.registry.advertised.url",
    "Where the schema registries of other brokers reach this one.  Unset: the address that it listens on.",
)
SCHEMA_REGISTRY_ALLOWED_HOSTS: Final = words(
    "schema.registry.allowed.hosts",
    (),
    "Further names by which clients reach the schema registry; `*` is any.  It refuses requests whose `Host` is "
    "neither one of these nor an address, `localhost`, this machine's name or that of its listener or advertised URL.",
)
PROCESSES_COMMAND_CONFIG: Final = optional_text(
    "processes.command.config",
    "A `client.properties` with which the processes beside the broker (the audit's counts, the schema registry) "
    "connect to its first listener with TLS or a login.  Unset: they use its first PLAINTEXT listener.",
)

# Headings are those of docs/configuration.md.
BROKER_SETTING_GROUPS: Final[Mapping[str, tuple[AnySetting, ...]]] = {
    "Identity": (NODE_ID, BROKER_RACK, LOG_DIRS),
    "Cluster": (
        ZOOKEEPER_CONNECT,
        TREE_SOCKET,
        ZOOKEEPER_SESSION_TIMEOUT_MS,
        ZOOKEEPER_CONNECTION_TIMEOUT_MS,
        *ZOOKEEPER_SECURITY_SETTINGS,
        CONTROLLED_SHUTDOWN_ENABLE,
    ),
    "Schemas": (
        SCHEMA_REGISTRY_LISTENERS,
        SCHEMA_REGISTRY_TOPIC,
        SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR,
        SCHEMA_REGISTRY_ADVERTISED_URL,
        SCHEMA_REGISTRY_ALLOWED_HOSTS,
    ),
    "Processes beside the broker": (PROCESSES_COMMAND_CONFIG,),
    "Connections": (
        LISTENERS,
        ADVERTISED_LISTENERS,
        SHARED_LISTENERS,
        LISTENER_SECURITY_PROTOCOL_MAP,
        CONTROLLER_LISTENER_NAMES,
        SOCKET_REQUEST_MAX_BYTES,
        SOCKET_SEND_BUFFER_BYTES,
        SOCKET_RECEIVE_BUFFER_BYTES,
        CONNECTIONS_MAX_IDLE_MS,
        MAX_CONNECTIONS,
        MAX_CONNECTIONS_PER_IP,
        MAX_CONNECTIONS_PER_IP_OVERRIDES,
        QUOTA_WINDOW_NUM,
        QUOTA_WINDOW_SIZE_SECONDS,
        CONTROLLER_QUOTA_WINDOW_NUM,
        CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
        QUEUED_MAX_REQUEST_BYTES,
        SOCKET_RECEIVE_MIN_BYTES_PER_SECOND,
        REQUEST_SLOW_MS,
        FETCH_MAX_BYTES,
        MAX_REQUEST_PARTITION_SIZE_LIMIT,
        MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    ),
    "Topics": (
        NUM_PARTITIONS,
        DEFAULT_REPLICATION_FACTOR,
        AUTO_CREATE_TOPICS_ENABLE,
        MAX_AUTO_CREATE_TOPICS_PER_MINUTE,
        MAX_BROKER_PARTITIONS,
        DELETE_TOPIC_ENABLE,
        MIN_INSYNC_REPLICAS,
        REPLICA_LAG_TIME_MAX_MS,
        UNCLEAN_LEADER_ELECTION_ENABLE,
        AUTO_LEADER_REBALANCE_ENABLE,
        LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
        LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
        MESSAGE_MAX_BYTES,
        COMPRESSION_TYPE,
        LOG_RECORD_VALIDATION,
        COMPRESSION_GZIP_LEVEL,
        COMPRESSION_LZ4_LEVEL,
        COMPRESSION_ZSTD_LEVEL,
    ),
    "The log": (
        LOG_SEGMENT_BYTES,
        LOG_ROLL_MS,
        LOG_ROLL_HOURS,
        LOG_ROLL_JITTER_MS,
        LOG_ROLL_JITTER_HOURS,
        LOG_INDEX_INTERVAL_BYTES,
        LOG_INDEX_SIZE_MAX_BYTES,
        LOG_MESSAGE_TIMESTAMP_TYPE,
        LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
        LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
        PRODUCER_ID_EXPIRATION_MS,
    ),
    "The disk": (LOG_DIR_RESERVE_BYTES, LOG_DIR_LOW_BYTES),
    "Flushing": (
        LOG_FLUSH_POLICY,
        LOG_FLUSH_INTERVAL_MESSAGES,
        LOG_FLUSH_INTERVAL_MS,
        LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    ),
    "Replication": (
        REPLICA_SELECTOR_CLASS,
        REPLICA_FETCH_WAIT_MAX_MS,
        REPLICA_FETCH_MIN_BYTES,
        REPLICA_FETCH_MAX_BYTES,
        REPLICA_FETCH_RESPONSE_MAX_BYTES,
        REPLICA_FETCH_BACKOFF_MS,
        REPLICA_SOCKET_TIMEOUT_MS,
        REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    ),
    "Retention": (
        LOG_CLEANUP_POLICY,
        LOG_RETENTION_MS,
        LOG_RETENTION_MINUTES,
        LOG_RETENTION_HOURS,
        LOG_RETENTION_BYTES,
        LOG_RETENTION_CHECK_INTERVAL_MS,
        LOG_SEGMENT_DELETE_DELAY_MS,
    ),
    "Compaction": (
        LOG_CLEANER_ENABLE,
        LOG_CLEANER_BACKOFF_MS,
        LOG_CLEANER_DEDUPE_BUFFER_SIZE,
        LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
        LOG_CLEANER_MIN_CLEANABLE_RATIO,
        LOG_CLEANER_MIN_COMPACTION_LAG_MS,
        LOG_CLEANER_MAX_COMPACTION_LAG_MS,
        LOG_CLEANER_DELETE_RETENTION_MS,
    ),
    "Groups": (
        GROUP_MIN_SESSION_TIMEOUT_MS,
        GROUP_MAX_SESSION_TIMEOUT_MS,
        GROUP_INITIAL_REBALANCE_DELAY_MS,
        GROUP_MAX_SIZE,
        GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_SIZE,
        GROUP_CONSUMER_ASSIGNORS,
        OFFSET_METADATA_MAX_BYTES,
        OFFSETS_RETENTION_MINUTES,
        OFFSETS_RETENTION_CHECK_INTERVAL_MS,
        OFFSETS_TOPIC_NUM_PARTITIONS,
        OFFSETS_TOPIC_REPLICATION_FACTOR,
        OFFSETS_TOPIC_SEGMENT_BYTES,
        OFFSETS_LOAD_BUFFER_SIZE,
    ),
    "Transactions": (
        TRANSACTION_MAX_TIMEOUT_MS,
        TRANSACTIONAL_ID_EXPIRATION_MS,
        TRANSACTIONAL_ID_EXPIRATION_CHECK_INTERVAL_MS,
        TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        TRANSACTION_STATE_LOG_MIN_ISR,
        TRANSACTION_STATE_LOG_SEGMENT_BYTES,
        TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE,
    ),
    "TLS": TLS_SETTINGS,
    "Logins": LOGIN_SETTINGS,
    "HTTP: the schema registry and the admin listener": (*HTTP_SETTINGS, ADMIN_ALLOWED_HOSTS),
    "Between brokers": INTER_BROKER_SETTINGS,
    "Authorization": AUTHORIZER_SETTINGS,
    "Audit": (AUDIT_ENABLE, AUDIT_WINDOW_MS, AUDIT_INTERVAL_MS),
}
BROKER_SETTINGS: Final[Mapping[str, AnySetting]] = {
    setting.name: setting for group in BROKER_SETTING_GROUPS.values() for setting in group
}


def parse_address_counts(texts: Iterable[str]) -> Mapping[str, int]:
    """Counts by address, of `10.0.0.5:200` or `[::1]:200`.  Raises `ConfigError`."""
    counts: dict[str, int] = {}
    for text in texts:
        address, _, count = text.rpartition(":")
        try:
            parsed = ip_address(address.removeprefix("[").removesuffix("]"))
            # A connection's address is compared with it, and that has no IPv4 address in IPv6 form.
            mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
            host = str(mapped or parsed)
            number = int(count)
        except ValueError:
            host, number = "", -1
        if number < 0:
            raise ConfigError(
                f"{MAX_CONNECTIONS_PER_IP_OVERRIDES.name}: {text!r} is not an address and a count",
                hint="write ADDRESS:COUNT, as in 10.0.0.5:200",
            )
        counts[host] = number
    return counts
