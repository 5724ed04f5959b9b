"""Dead letters of a stream: rows that could not be processed go to a topic and a table before their batch is committed.

    from ottla.spark.dead_letters import DeadLetters, attempt

    parsed = clicks.withColumn("parsed", attempt(json.loads, "member bigint, page string")("value"))
    dead_letters = DeadLetters("localhost:9092", error="parsed.error", table="/lake/dead-letters")
    query = parsed.writeStream.foreachBatch(dead_letters.each_batch(write)).start()

DeadLetters     divides each batch: rows with an error are set aside, the others processed
attempt         a Python function as a column: its result, or the error that it raised

They are the letters of `ottla.dead_letters`, which shows them and puts them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

from ottla.runtime.installed import naming_what_to_install

with naming_what_to_install():
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.functions import udf
    from pyspark.sql.types import (
        DataType,
        StringType,
        StructField,
        StructType,
        _make_type_verifier,
        _parse_datatype_string,
    )

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.dead_letters.letter import (
    CLUSTER_ID,
    ERROR_CHARS_MAX,
    ERROR_CLASS,
    ERROR_MESSAGE,
    LETTER_HEADERS,
    OFFSET,
    PARTITION,
    STAGE,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    error_class_of,
)
from ottla.dead_letters.topics import dead_letter_topic, ensure_topic
from ottla.model.identifiers import uuid_to_text
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.arrow.columns import ARROW_TYPES, SPARK_TYPES
from ottla.spark.checkpointed_rows import CheckpointedRows, retry_lost_rows
from ottla.spark.errors import SparkOptionError
from ottla.spark.lake.delta_appends import append_once, newest_version, open_delta
from ottla.spark.lake.target import LakeTarget, parse_target
from ottla.spark.options.connection import connection_of
from ottla.spark.registration import register_source
from ottla.spark.source.cluster_view import open_cluster

# What a letter is made of; the source gives `headers` with the option includeHeaders.
RECORD_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
# The error of a row, while it is on its way.
ERROR: Final = "_dead_letter_error"

TABLE_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", ARROW_TYPES["timestamp"]),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", ARROW_TYPES["headers"]),
        pa.field("stage", pa.string()),
        pa.field("error_class", pa.string()),
        pa.field("error_message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Destination:
    """Of one topic: its id, its dead-letter topic, and the partitions of that."""

    topic_id: UUID
    dead_letter_topic: str
    partitions_count: int


def check_rows(rows: DataFrame) -> None:
    """Raises `SparkOptionError` when a column of the record is missing, or has another type."""
    types = dict(rows.dtypes)
    for name in RECORD_COLUMNS:
        if name not in types:
            hint = 'read with option("includeHeaders", "true")' if name == "headers" else "keep the source's columns"
            raise SparkOptionError(f"dead letters need the column {name!r} of the record", hint=hint)
        if types[name] != SPARK_TYPES[name]:
            raise SparkOptionError(
                f"the column {name!r} is {types[name]}, and not the record's {SPARK_TYPES[name]}",
                hint="give what you compute a name of its own",
            )


def error_text(rows: DataFrame, error: Column) -> Column:
    """`struct<class: string, message: string>` of an error that is a text or already such a struct; null stays null."""
    kind = rows.select(error.alias(ERROR)).schema[ERROR].dataType
    if isinstance(kind, StringType):
        return F.when(error.isNotNull(), F.struct(F.lit("").alias("class"), error.alias("message")))
    if isinstance(kind, StructType) and {"class", "message"} <= set(kind.names):
        return error
    raise SparkOptionError(
        f"the error of a row is {kind.simpleString()}",
        hint="it is a text, or struct<class: string, message: string> as `attempt` gives it; null where there is none",
    )


def as_records(bad: DataFrame, cluster_id: str, stage: str, destinations: Mapping[str, Destination]) -> DataFrame:
    """The rows for the sink: key, value, headers, topic, partition."""
    texts = {
        TOPIC: F.col("topic"),
        PARTITION: F.col("partition").cast("string"),
        OFFSET: F.col("offset").cast("string"),
        STAGE: F.lit(stage),
        ERROR_CLASS: F.coalesce(F.col(f"{ERROR}.class"), F.lit("")),
        ERROR_MESSAGE: F.substring(F.coalesce(F.col(f"{ERROR}.message"), F.lit("")), 1, ERROR_CHARS_MAX),
        CLUSTER_ID: F.lit(cluster_id),
        TOPIC_ID: _of_topic({name: uuid_to_text(each.topic_id) for name, each in destinations.items()}),
        TIMESTAMP: F.unix_millis("timestamp").cast("string"),
    }
    ours = F.array(
        *(F.struct(F.lit(name).alias("key"), F.encode(texts[name], "UTF-8").alias("value")) for name in LETTER_HEADERS)
    )
    counts = _of_topic({name: each.partitions_count for name, each in destinations.items()})
    own = F.coalesce(F.col("headers"), F.array().cast(SPARK_TYPES["headers"]))
    return bad.select(
        "key",
        "value",
        F.concat(own, ours.cast(SPARK_TYPES["headers"])).alias("headers"),
        _of_topic({name: each.dead_letter_topic for name, each in destinations.items()}).alias("topic"),
        F.pmod(F.col("partition"), counts).cast("int").alias("partition"),
    )


def as_table_rows(bad: DataFrame, cluster_id: str, stage: str, destinations: Mapping[str, Destination]) -> DataFrame:
    """The rows for the table, in an order that a batch run again has too; `timestamp` in us since 1970."""
    topic_id = _of_topic({name: uuid_to_text(each.topic_id) for name, each in destinations.items()})
    return bad.select(
        F.lit(cluster_id).alias("cluster_id"),
        "topic",
        topic_id.alias("topic_id"),
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("timestamp"),
        "key",
        "value",
        "headers",
        F.lit(stage).alias("stage"),
        F.coalesce(F.col(f"{ERROR}.class"), F.lit("")).alias("error_class"),
        F.coalesce(F.col(f"{ERROR}.message"), F.lit("")).alias("error_message"),
    ).orderBy("topic", "partition", "offset")


def _of_topic(values: Mapping[str, str] | Mapping[str, int]) -> Column:
    pairs = [F.lit(each) for pair in values.items() for each in pair]
    return F.element_at(F.create_map(*pairs), F.col("topic"))


ColumnOrName: TypeAlias = Column | str

ERROR_TYPE: Final = StructType([StructField("class", StringType()), StructField("message", StringType())])


def attempt(function: Callable[..., Any], returns: DataType | str) -> Callable[..., Column]:
    """A column function that never fails: it gives `struct<result: returns, error: struct<class, message>>`.

        parsed = attempt(json.loads, "member bigint, page string")
        rows.withColumn("parsed", parsed("value"))          # parsed.result.page, or parsed.error.message

    `function` gets the columns' values (binary ones as `bytes`) and returns a value of the type `returns`: a dict, a
    tuple or a Row for a struct.  What it raises (an `Exception`) is the error, and so is a result of another type.
    Where there is an error the result is null, and the other way round.
    It runs in Python, row by row; `from_json` and its like, where they do, are faster.
    """
    kind = _parse_datatype_string(returns) if isinstance(returns, str) else returns
    schema = StructType([StructField("result", kind), StructField("error", ERROR_TYPE)])
    verify = _make_type_verifier(kind, nullable=True)

    def tried(*values: Any) -> tuple[Any, tuple[str, str] | None]:
        try:
            result = function(*(bytes(each) if isinstance(each, bytearray) else each for each in values))
            verify(result)
        except Exception as error:  # noqa: BLE001 (any error of a user's function)
            return None, (error_class_of(error), str(error)[:ERROR_CHARS_MAX])
        return result, None

    column: Callable[..., Column] = udf(tried, schema)
    return column


BatchFunction: TypeAlias = Callable[[DataFrame, int], None]

_QUERY_ID: Final = "sql.streaming.queryId"
_SPECULATION: Final = "spark.speculation"


class DeadLetters:
    """Where rows with an error go: to the topic `<topic>.dead-letter` of each row's topic, and to a table.

        dead_letters = DeadLetters("localhost:9092", error="parsed.error", table="s3://lake/dead-letters")
        stream.writeStream.foreachBatch(dead_letters.each_batch(process))

    bootstrap   the cluster of the dead-letter topics; the rows were read from it, too
    error       a column, its name or a SQL expression: null for a good row, else a text, or
                `struct<class: string, message: string>` as `attempt` gives it
    topic       one dead-letter topic for all; None: one for each topic.  Those that are not there are made
    table       a Delta table (a path, or a URL of the lake; `storage` are its settings); None: no table
    has_topic   False: no topic, only the table
    stage       a word for what is done with the rows, in the letters
    keeps_batch the batch is kept by the executors while it is divided, so that nothing is computed twice.  False: only
                where the error of a row is always the same; a row that is good while the bad ones are set aside and
                bad afterwards would be in neither part
    options     further options of the sink, those of security among them

    The rows need the source's columns key, value, topic, partition, offset, timestamp and headers (option
    includeHeaders) as they were read, and may have others.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        error: Column | str,
        topic: str | None = None,
        table: str | Path | LakeTarget | None = None,
        storage: Mapping[str, str] | None = None,
        has_topic: bool = True,
        stage: str = "PROCESS",
        keeps_batch: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if not has_topic and table is None:
            raise SparkOptionError("dead letters go nowhere", hint="name a table, or leave has_topic as it is")
        self._bootstrap = bootstrap
        self._error = F.expr(error) if isinstance(error, str) else error
        self._topic = topic
        self._table = None if table is None else parse_target(table, storage)
        self._has_topic = has_topic
        self._stage = stage
        self._keeps_batch = keeps_batch
        self._options = dict(options or {})

    def each_batch(self, process: BatchFunction) -> BatchFunction:
        """A function for `foreachBatch`: the bad rows are set aside and confirmed, then `process` gets the good ones.

        When either fails the batch is not committed, and runs again: the topic may then have a letter twice (its origin
        is the same, and a replay puts it back once), the table has it once.  When an executor died with rows of the
        batch, both are done again at once.
        """

        def divide(batch: DataFrame, batch_id: int) -> None:
            check_rows(batch)
            spark = batch.sparkSession
            query_id = spark.sparkContext.getLocalProperty(_QUERY_ID) or "batch"
            app_id = f"{query_id}/{self._stage}/{self._error}"
            if not self._keeps_batch:
                self._divide(self._judged(batch), app_id, batch_id, process)
                return
            _refuse_speculation(spark)
            retry_lost_rows(lambda: self._keep_and_divide(batch, app_id, batch_id, process))

        return divide

    def _keep_and_divide(self, batch: DataFrame, app_id: str, batch_id: int, process: BatchFunction) -> None:
        kept = CheckpointedRows(self._judged(batch))
        try:
            self._divide(kept.rows, app_id, batch_id, process)
        finally:
            kept.release()

    def _divide(self, judged: DataFrame, app_id: str, batch_id: int, process: BatchFunction) -> None:
        self._write(judged, app_id, batch_id)
        process(judged.where(F.col(ERROR).isNull()).drop(ERROR), batch_id)

    def write(self, rows: DataFrame, app_id: str, version: int) -> None:
        """Set the rows aside that have an error; they are stored when this returns.

        The table has them once for each `version` of `app_id`, and versions only grow: a batch's number.  A version
        that is written again adds what the table does not have.
        Raises `SparkOptionError`, `LakeError`, and the errors of the sink.
        """
        check_rows(rows)
        self._write(self._judged(rows), app_id, version)

    def _judged(self, rows: DataFrame) -> DataFrame:
        return rows.withColumn(ERROR, error_text(rows, self._error))

    def _write(self, judged: DataFrame, app_id: str, version: int) -> None:
        bad = judged.where(F.col(ERROR).isNotNull())
        topics = [row["topic"] for row in bad.select("topic").distinct().collect()]
        if not topics:
            return
        with open_cluster(connection_of(self._bootstrap, self._options, "ottla-dead-letters")) as cluster:
            destinations = {name: self._destination(cluster, name) for name in topics}
            cluster_id = cluster.info.cluster_id or ""
        if self._has_topic:
            register_source(judged.sparkSession)
            records = as_records(bad, cluster_id, self._stage, destinations)
            options = {**self._options, "kafka.bootstrap.servers": self._bootstrap}
            records.write.format("ottla").options(**options).mode("append").save()
        if self._table is not None:
            self._table.refuse_remote_master(_master(judged.sparkSession))
            letters = as_table_rows(bad, cluster_id, self._stage, destinations).toLocalIterator()
            append_letters(self._table, letters, app_id, version)

    def _destination(self, cluster: Cluster, topic: str) -> Destination:
        try:
            source = cluster.topic(topic)
        except UnknownTopic:  # deleted since it was read
            source = None
        name = dead_letter_topic(topic, self._topic)
        found = ensure_topic(cluster, name, source) if self._has_topic else None
        count = 1 if found is None else len(found.partitions)
        return Destination(ZERO_UUID if source is None else source.topic_id, name, count)


def _master(spark: SparkSession) -> str:
    return spark.sparkContext.master or ""


def _refuse_speculation(spark: SparkSession) -> None:
    """Two copies of a task leave their rows with two executors, and readers take the one or the other."""
    if spark.sparkContext.getConf().get(_SPECULATION, "false").lower() == "true":
        raise SparkOptionError(
            f"under {_SPECULATION} a row may be computed twice, and be good the one time and bad the other",
            hint=f"set {_SPECULATION} to false, or say keeps_batch=False where the error of a row is always the same",
        )


# The driver holds so many rows of the table at a time; each such part is one commit.
ROWS_OF_COMMIT: Final = 5_000
COMMITS_OF_BATCH_MAX: Final = 1 << 20
_PARTITION_BY: Final = ("topic",)
# Identifies a letter: the place of its record, and the stage that set it aside.
_IDENTITY: Final = ("cluster_id", "topic", "topic_id", "partition", "offset", "stage")

_Identity: TypeAlias = tuple[Any, ...]


def append_letters(target: LakeTarget, letters: Iterator[Any], app_id: str, version: int) -> None:
    """`letters`: rows of `TABLE_SCHEMA`, of the batch `version` of `app_id`.

    A batch that ended between its commits may have other letters when it is run again, since functions fail at times:
    so the letters that the table has are found by their places, and not by the commits' numbers.  Raises `LakeError`.
    """
    app_id = f"ottla-dead-letters/{app_id}"
    first = version * COMMITS_OF_BATCH_MAX
    newest = newest_version(target, app_id)
    if newest is not None and newest >= first + COMMITS_OF_BATCH_MAX:
        return  # a later batch's: this one was whole
    is_run_again = newest is not None and newest >= first
    number = first if newest is None or not is_run_again else newest + 1
    for part in _parts(letters):
        if is_run_again:
            part = _without_known(target, part)
            if not part.num_rows:
                continue
        assert number < first + COMMITS_OF_BATCH_MAX, "a batch has fewer rows"
        append_once(target, part, app_id=app_id, version=number, partition_by=_PARTITION_BY)
        number += 1


def _parts(rows: Iterator[Any]) -> Iterator[pa.Table]:
    while part := list(islice(rows, ROWS_OF_COMMIT)):
        columns = {name: [row[name] for row in part] for name in TABLE_SCHEMA.names}
        columns["headers"] = [None if each is None else [pair.asDict() for pair in each] for each in columns["headers"]]
        yield pa.table(columns, schema=TABLE_SCHEMA)


def _without_known(target: LakeTarget, part: pa.Table) -> pa.Table:
    offsets = part["offset"]
    near = (
        pc.field("topic").isin(part["topic"].unique())
        & (pc.field("offset") >= pc.min(offsets))
        & (pc.field("offset") <= pc.max(offsets))
    )
    dataset = open_delta(target, TABLE_SCHEMA, _PARTITION_BY).to_pyarrow_dataset()
    known = set(_identities(dataset.to_table(columns=list(_IDENTITY), filter=near)))
    return part.filter(pa.array([each not in known for each in _identities(part)], pa.bool_()))


def _identities(letters: pa.Table) -> Iterator[_Identity]:
    return zip(*(letters[name].to_pylist() for name in _IDENTITY), strict=True)
