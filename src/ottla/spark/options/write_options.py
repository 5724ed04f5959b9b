"""The options of a write, by the official connector's names, as frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.producing.produce_requests import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from ottla.client.producing.settings import IDEMPOTENT_IN_FLIGHT_MAX, ProducerOptions
from ottla.model.identifiers import topic_name_problem
from ottla.model.limits import MIB
from ottla.records.compression import Codec
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, Connection, parse_connection
from ottla.spark.options.option_reader import NOT_OFFERED, OptionReader

# Below the 1 MiB that brokers accept by default (max.message.bytes), even when the codec expands it.
BATCH_BYTES_DEFAULT: Final = 512 * 1024
BATCH_BYTES_MIN: Final = 1024
BATCH_BYTES_MAX: Final = 64 << 20
REQUEST_BYTES_DEFAULT: Final = 1 * MIB
BUFFER_BYTES_DEFAULT: Final = 32 * MIB
DELIVERY_TIMEOUT_MS_DEFAULT: Final = 120_000
# Kafka's default; brokers have a greatest one, transaction.max.timeout.ms.
TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 60_000
ID_PREFIX_DEFAULT: Final = "ottla-spark-"
ACKS: Final[Mapping[str, str]] = {"all": "-1", "-1": "-1", "1": "1", "0": "0"}

# The allowed types of each column; a column of another name is not written, as with the official connector.
COLUMN_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "key": frozenset({"binary", "string", "void"}),
    "value": frozenset({"binary", "string", "void"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "timestamp": frozenset({"timestamp", "timestamp_ntz"}),
}

# A task has all its rows at once, and each is tried again until its delivery time is over.
WRITES_WITHOUT_EFFECT: Final = frozenset(
    {
        "kafka.linger.ms",
        "kafka.metadata.max.idle.ms",
        "kafka.partitioner.adaptive.partitioning.enable",
        "kafka.partitioner.availability.timeout.ms",
    }
)
_LEVELS: Final = "the codecs' own levels are used"
WRITES_NOT_OFFERED: Final[Mapping[str, str]] = {
    **NOT_OFFERED,
    "kafka.partitioner.class": "Kafka's default partitioner is used; the column 'partition' overrules it",
    "kafka.transactional.id": "each query has its own: transactionalIdPrefix and the query's id",
    "kafka.compression.gzip.level": _LEVELS,
    "kafka.compression.lz4.level": _LEVELS,
    "kafka.compression.zstd.level": _LEVELS,
}


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """`from_batch`: the first batch of a query that was not exactly once before."""

    id_prefix: str = ID_PREFIX_DEFAULT
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    from_batch: int | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`topic` None: every row names its own, in the column `topic`.  `exactly_once` None: at least once."""

    connection: Connection
    topic: str | None
    codec: Codec = Codec.NONE
    batch_bytes_max: int = BATCH_BYTES_DEFAULT
    keeps_timestamps: bool = False
    ignores_keys: bool = False
    producer: ProducerOptions = dataclasses.field(default_factory=ProducerOptions)
    exactly_once: ExactlyOnce | None = None


def parse_write_options(
    options: Mapping[str, str], column_types: Mapping[str, str], *, overwrites: bool
) -> WriteOptions:
    """`column_types`: Spark's simple type of each column.  Raises `SparkOptionError`, which names option or column."""
    if overwrites:
        raise SparkOptionError("a topic cannot be overwritten", hint='write with mode("append")')
    parsed = parse_without_columns(options)
    _check_columns(parsed, column_types)
    return parsed


def parse_without_columns(options: Mapping[str, str]) -> WriteOptions:
    """What can be known before the rows' columns are.  Raises `SparkOptionError`, which names the option."""
    reader = OptionReader(options)
    connection = parse_connection(reader)
    block_ms = reader.number("kafka.max.block.ms", at_least=TIMEOUT_MS_MIN, at_most=TIMEOUT_MS_MAX)
    if block_ms is not None:
        connection = dataclasses.replace(connection, call_timeout_ms=block_ms)
    topic = reader.text("topic")
    batch_bytes = reader.number("kafka.batch.size", at_least=BATCH_BYTES_MIN, at_most=BATCH_BYTES_MAX)
    batch_bytes = BATCH_BYTES_DEFAULT if batch_bytes is None else batch_bytes
    producer = _producer(reader, connection)
    parsed = WriteOptions(
        connection,
        topic,
        Codec[reader.choice("kafka.compression.type", {codec.name.lower(): codec.name for codec in Codec}, "NONE")],
        min(batch_bytes, producer.request_bytes_max),
        reader.flag("includeTimestamp", False),
        reader.flag("kafka.partitioner.ignore.keys", False),
        producer,
        _exactly_once(reader, producer),
    )
    reader.without_effect(WRITES_WITHOUT_EFFECT)
    reader.refuse_rest(WRITES_NOT_OFFERED)
    if topic is not None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise SparkOptionError(f"the option 'topic': {problem}")
    return parsed


def _producer(reader: OptionReader, connection: Connection) -> ProducerOptions:
    acks = int(reader.choice("kafka.acks", ACKS, str(ACKS_ALL)))
    assert acks in (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
    # As in Kafka's producers: idempotent unless the user chose other acks, and never silently without what was asked.
    is_idempotent = reader.flag("kafka.enable.idempotence", acks == ACKS_ALL)
    if is_idempotent and acks != ACKS_ALL:
        raise SparkOptionError(
            "the options 'kafka.enable.idempotence' and 'kafka.acks' contradict each other",
            hint="idempotence needs all",
        )
    in_flight = reader.number("kafka.max.in.flight.requests.per.connection", at_least=1, at_most=1000)
    if is_idempotent and in_flight is not None and in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
        raise SparkOptionError(
            f"the option 'kafka.max.in.flight.requests.per.connection' is {in_flight}",
            hint=f"an idempotent producer has at most {IDEMPOTENT_IN_FLIGHT_MAX}",
        )
    delivery_ms = reader.number("kafka.delivery.timeout.ms", at_least=TIMEOUT_MS_MIN, at_most=TIMEOUT_MS_MAX)
    if delivery_ms is not None and delivery_ms < connection.request_timeout_ms:
        raise SparkOptionError(
            f"the option 'kafka.delivery.timeout.ms' is {delivery_ms}",
            hint=f"it cannot be less than kafka.request.timeout.ms, {connection.request_timeout_ms}",
        )
    # Each batch is tried again until its delivery time is over, however many times that is.
    reader.number("kafka.retries", at_least=1)
    request_bytes = reader.number("kafka.max.request.size", at_least=BATCH_BYTES_MIN, at_most=BATCH_BYTES_MAX)
    buffer_bytes = reader.number("kafka.buffer.memory", at_least=BATCH_BYTES_MIN)
    return ProducerOptions(
        acks=acks,
        idempotent=is_idempotent,
        max_in_flight=IDEMPOTENT_IN_FLIGHT_MAX if in_flight is None else in_flight,
        request_bytes_max=REQUEST_BYTES_DEFAULT if request_bytes is None else request_bytes,
        buffer_bytes_max=BUFFER_BYTES_DEFAULT if buffer_bytes is None else buffer_bytes,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS_DEFAULT if delivery_ms is None else delivery_ms,
    )


def _exactly_once(reader: OptionReader, producer: ProducerOptions) -> ExactlyOnce | None:
    deliveries = {name: name for name in ("at-least-once", "exactly-once")}
    is_chosen = reader.choice("delivery", deliveries, "at-least-once") == "exactly-once"
    prefix = reader.text("transactionalIdPrefix")
    timeout_ms = reader.number("kafka.transaction.timeout.ms", at_least=1, at_most=TIMEOUT_MS_MAX)
    from_batch = reader.number("exactlyOnceFromBatch", at_least=1)
    if not is_chosen:
        for name, given in (
            ("transactionalIdPrefix", prefix),
            ("kafka.transaction.timeout.ms", timeout_ms),
            ("exactlyOnceFromBatch", from_batch),
        ):
            if given is not None:
                raise SparkOptionError(
                    f"the option {name!r} does not apply at least once", hint="give delivery=exactly-once, too"
                )
        return None
    if not producer.is_idempotent:
        raise SparkOptionError(
            "the option 'delivery' is exactly-once, which needs 'kafka.acks' all and 'kafka.enable.idempotence' true",
            hint="leave both out",
        )
    # The topic of the query's deliveries is called by it, too.
    problem = None if prefix is None else topic_name_problem(f"{prefix}{UUID(int=0)}")
    if problem is not None:
        raise SparkOptionError(f"the option 'transactionalIdPrefix': {problem}")
    return ExactlyOnce(
        ID_PREFIX_DEFAULT if prefix is None else prefix,
        TRANSACTION_TIMEOUT_MS_DEFAULT if timeout_ms is None else timeout_ms,
        from_batch,
    )


def _check_columns(options: WriteOptions, column_types: Mapping[str, str]) -> None:
    if "value" not in column_types:
        raise SparkOptionError(
            "there is no column 'value'",
            hint='add one: df.selectExpr("CAST(id AS STRING) AS key", "payload AS value")',
        )
    if options.topic is None and "topic" not in column_types:
        raise SparkOptionError("neither the option 'topic' nor a column 'topic' is given", hint="name the topic")
    if options.keeps_timestamps and "timestamp" not in column_types:
        raise SparkOptionError("the option 'includeTimestamp' needs a column 'timestamp'")
    for name, allowed in COLUMN_TYPES.items():
        kind = column_types.get(name)
        if kind is not None and kind not in allowed and _is_used(options, name):
            raise SparkOptionError(
                f"the column {name!r} is {kind}", hint=f"it can be {' or '.join(sorted(allowed - {'void'}))}: cast it"
            )


def _is_used(options: WriteOptions, column: str) -> bool:
    if column == "topic":
        return options.topic is None
    return column != "timestamp" or options.keeps_timestamps
