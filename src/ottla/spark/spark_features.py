"""What the Spark that runs here has of what came after 4.0: the only module that knows Spark's versions.

A feature is found by the class that brought it to PySpark, not by a version's number: platforms number their Spark in
their own way, and add parts of later versions.  Where such a class is missing, an empty one has its name here, so that
classes of the source can be derived from it; a Spark without the feature calls none of its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyspark
from pyspark.sql.datasource import DataSourceStreamWriter

from ottla.spark.errors import NotInThisSpark

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

__all__ = [
    "INSTALLED",
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SparkFeature",
    "SparkFeatures",
    "SupportsTriggerAvailableNow",
    "features_where",
]

_SOURCES: Final = "pyspark.sql.datasource"
_STREAMS: Final = "pyspark.sql.streaming.datasource"


class _Part(NamedTuple):
    """PySpark has `module` with `name` where it has the feature; a Spark that lacks it `lacks` this."""

    since: str
    module: str
    name: str
    lacks: str


class SparkFeature(Enum):
    """What a Spark after 4.0 added to sources in Python, and this source uses where it is."""

    PUSHED_FILTERS = _Part("4.1", _SOURCES, "Filter", "passes no conditions of a query to a source in Python")
    ARROW_STREAM_SINKS = _Part(
        "4.1", _SOURCES, "DataSourceStreamArrowWriter", "passes a stream's rows one by one to a sink in Python"
    )
    ARROW_FUNCTIONS = _Part("4.1", "pyspark.sql.functions", "arrow_udf", "has no functions over columns of Arrow")
    # With it came the source's own end of `availableNow`, and the logs' ends in a query's progress.
    READ_LIMITS = _Part("4.2", _STREAMS, "ReadLimit", "passes no limits of a micro-batch to a source in Python")

    @property
    def since(self) -> str:
        """The first version of Apache Spark that has it."""
        return self.value.since


class SparkFeatures:
    """The features of one Spark."""

    def __init__(self, version: str, found: Collection[SparkFeature]) -> None:
        self.version = version
        self._found = frozenset(found)

    def __contains__(self, feature: SparkFeature) -> bool:
        return feature in self._found

    @property
    def java_max(self) -> int | None:
        """The newest Java that it runs on; None: no such limit is known.

        Before 4.2 Hadoop's login and Arrow's memory use what Java 24 removed.
        """
        return None if SparkFeature.READ_LIMITS in self._found else 23

    def require(self, feature: SparkFeature, use: str, hint: str) -> None:
        """Raises `NotInThisSpark` where the feature is missing.  `use` is the subject of the message."""
        if feature not in self._found:
            raise NotInThisSpark(
                f"{use} needs Spark {feature.since} or newer: Spark {self.version} {feature.value.lacks}", hint=hint
            )


def features_where(version: str, has: Callable[[str, str], bool]) -> SparkFeatures:
    """The features of a PySpark in which `has(module, name)` says what it has."""
    return SparkFeatures(version, [each for each in SparkFeature if has(each.value.module, each.value.name)])


def _found(module: str, name: str) -> Any:
    """What PySpark has under this name, or None."""
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError:
        return None


INSTALLED: Final = features_where(pyspark.__version__, lambda module, name: _found(module, name) is not None)

if not TYPE_CHECKING:

    def _class(module: str, name: str, base: type = object) -> type:
        """PySpark's class, or an empty one."""
        return _found(module, name) or type(name, (base,), {})

    Filter = _class(_SOURCES, "Filter")
    EqualNullSafe = _class(_SOURCES, "EqualNullSafe", Filter)
    EqualTo = _class(_SOURCES, "EqualTo", Filter)
    GreaterThan = _class(_SOURCES, "GreaterThan", Filter)
    GreaterThanOrEqual = _class(_SOURCES, "GreaterThanOrEqual", Filter)
    In = _class(_SOURCES, "In", Filter)
    LessThan = _class(_SOURCES, "LessThan", Filter)
    LessThanOrEqual = _class(_SOURCES, "LessThanOrEqual", Filter)
    DataSourceStreamArrowWriter = _class(_SOURCES, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
    ReadLimit = _class(_STREAMS, "ReadLimit")
    ReadAllAvailable = _class(_STREAMS, "ReadAllAvailable", ReadLimit)
    ReadMaxRows = _class(_STREAMS, "ReadMaxRows", ReadLimit)
    SupportsTriggerAvailableNow = _class(_STREAMS, "SupportsTriggerAvailableNow")
