"""The data source `ottla`: Kafka topics in Spark without a jar (Python Data Source API).

Never named `kafka`: where both exist, Spark uses the JVM's source of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import DataType, StructType

from ottla.spark.arrow.columns import ALL_COLUMNS, SPARK_TYPES, columns_wanted, spark_ddl
from ottla.spark.errors import NotInThisSpark, SparkOptionError, with_brief_errors
from ottla.spark.options.option_reader import refuse_table
from ottla.spark.options.read_options import includes_headers, parse_read_options
from ottla.spark.options.write_options import WriteOptions, parse_without_columns, parse_write_options
from ottla.spark.sink.at_least_once import BatchSink, StreamSink
from ottla.spark.sink.exactly_once import ExactlyOnceSink
from ottla.spark.sink.row_sink import RowSink
from ottla.spark.source.batch_reader import BatchReader, FilteredBatchReader
from ottla.spark.source.stream_reader import StreamReader, StreamReaderWithoutLimits
from ottla.spark.spark_features import INSTALLED, DataSourceStreamArrowWriter, SparkFeature
from ottla.spark.worker_import import advise_workers


class OttlaDataSource(DataSource):
    """Options: `read_options` and `write_options`; columns: `columns`.

    Spark makes it at `load()` and `save()`, and asks it for readers and writers in processes that plan for it.
    """

    @with_brief_errors
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        check_options(options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        return spark_ddl(columns_wanted(includes_headers(self.options)))

    @with_brief_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        advise_workers()
        options = parse_read_options(self.options, is_stream=False)
        kind = FilteredBatchReader if options.pushes_filters else BatchReader
        return kind(options, wanted_columns(schema))

    @with_brief_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        advise_workers()
        kind = StreamReader if SparkFeature.READ_LIMITS in INSTALLED else StreamReaderWithoutLimits
        return kind(parse_read_options(self.options, is_stream=True), wanted_columns(schema))

    @with_brief_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        advise_workers()
        options = self._write_options(schema, overwrite)
        if options.exactly_once is not None:
            raise SparkOptionError(
                "the option 'delivery' cannot be exactly-once in a batch write",
                hint="a batch write has no checkpoint, and is at least once; write with writeStream",
            )
        return BatchSink(options)

    @with_brief_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        advise_workers()
        options = self._write_options(schema, overwrite)
        sink: DataSourceStreamArrowWriter = (
            StreamSink(options) if options.exactly_once is None else ExactlyOnceSink(options, options.exactly_once)
        )
        return sink if SparkFeature.ARROW_STREAM_SINKS in INSTALLED else RowSink(sink, schema)

    def _write_options(self, schema: StructType, overwrites: bool) -> WriteOptions:
        column_types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return parse_write_options(self.options, column_types, overwrites=overwrites)


_OF_READS: Final = frozenset({"subscribe", "subscribepattern", "assign"})
_OF_WRITES: Final = frozenset({"topic", "checkpointlocation", "includetimestamp"})


def check_options(options: Mapping[str, str]) -> None:
    """Raises `SparkOptionError` for options that no read, no stream and no write could take.

    What only one of them refuses (an end for a stream) is refused when it begins.
    """
    refuse_table(options)
    names = {name.lower() for name in options}
    if names & _OF_READS:
        try:
            parse_read_options(options, is_stream=False)
        except SparkOptionError as batch_error:
            try:
                parse_read_options(options, is_stream=True)
            except NotInThisSpark:
                raise  # a batch read has not even the option
            except SparkOptionError:
                raise batch_error from None
        return
    try:
        parse_without_columns(options)
    except SparkOptionError:
        if names & _OF_WRITES:
            raise
        # Nothing says that it is a write: what a read lacks is the better advice.
        parse_read_options(options, is_stream=True)


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """Spark neither prunes columns nor limits rows of a Python source, so a narrow schema is how to read less.

    Raises `SparkOptionError` for a column that records do not have.
    """
    for field in schema.fields:
        expected = SPARK_TYPES.get(field.name)
        if expected is None:
            raise SparkOptionError(
                f"the schema has the column {field.name!r}", hint=f"records have {', '.join(ALL_COLUMNS)}"
            )
        if _plain(field.dataType) != expected:
            raise SparkOptionError(
                f"the schema's column {field.name!r} is {field.dataType.simpleString()}",
                hint=f"read it as {expected} and cast it afterwards",
            )
    if not schema.fields:
        raise SparkOptionError("the schema has no columns", hint="name at least one")
    return tuple(schema.names)


def _plain(kind: DataType) -> str:
    return str(kind.simpleString())
