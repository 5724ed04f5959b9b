"""The data source `ottla`: Kafka topics in Spark without a jar (Python Data Source API).

Never named `kafka`: where both exist, Spark uses the JVM's source of that name.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from ottla.spark.arrow.columns import columns_wanted, spark_ddl
from ottla.spark.errors import told_briefly
from ottla.spark.options.option_check import check_options
from ottla.spark.options.read_options import includes_headers, parse_read_options
from ottla.spark.options.write_options import WriteOptions, parse_write_options
from ottla.spark.sink.sinks import BatchSink, StreamSink
from ottla.spark.source.batch_reader import BatchReader, FilteredBatchReader
from ottla.spark.source.source_schema import wanted_columns
from ottla.spark.source.stream_reader import StreamReader
from ottla.spark.worker_import import advise_workers


class OttlaDataSource(DataSource):
    """Options: `read_options` and `write_options`; columns: `columns`.

    Spark makes it at `load()` and `save()`, and asks it for readers and writers in processes that plan for it.
    """

    @told_briefly
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        check_options(options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        return spark_ddl(columns_wanted(includes_headers(self.options)))

    @told_briefly
    def reader(self, schema: StructType) -> DataSourceReader:
        advise_workers()
        options = parse_read_options(self.options, is_stream=False)
        kind = FilteredBatchReader if options.pushes_filters else BatchReader
        return kind(options, wanted_columns(schema))

    @told_briefly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        advise_workers()
        return StreamReader(parse_read_options(self.options, is_stream=True), wanted_columns(schema))

    @told_briefly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        advise_workers()
        return BatchSink(self._write_options(schema, overwrite))

    @told_briefly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        advise_workers()
        return StreamSink(self._write_options(schema, overwrite))

    def _write_options(self, schema: StructType, overwrites: bool) -> WriteOptions:
        column_types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return parse_write_options(self.options, column_types, overwrites=overwrites)
