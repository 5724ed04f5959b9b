"""Lets Spark find the source `ottla` automatically: `spark.read.format("ottla")` needs no registration.

Spark imports every installed package whose name begins with `pyspark_`, and registers its `DefaultSource`.  An import
that fails would take every other Python source with it, so missing packages are reported when the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    DefaultSource: type[DataSource]

__all__ = ["DefaultSource"]

try:
    from ottla.spark.source.data_source import OttlaDataSource as DefaultSource
except ImportError as _error:
    from pyspark_ottla.missing import source_that_lacks

    DefaultSource = source_that_lacks(str(_error))
