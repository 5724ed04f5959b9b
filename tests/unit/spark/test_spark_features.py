"""Which features a Spark has, and what its users read where one is missing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pyspark
import pytest

from ottla.spark import spark_features
from ottla.spark.errors import NotInThisSpark, SparkOptionError
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.spark_features import INSTALLED, SparkFeature, SparkFeatures, features_where

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark-platforms.md"
BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}
SPARK_4_0 = SparkFeatures("4.0.5", ())
SPARK_4_1 = SparkFeatures(
    "4.1.4", (SparkFeature.PUSHED_FILTERS, SparkFeature.ARROW_STREAM_SINKS, SparkFeature.ARROW_FUNCTIONS)
)


def version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def test_a_feature_is_found_by_the_class_that_brought_it() -> None:
    found = features_where("4.1.4", lambda module, name: name == "Filter")
    assert [feature for feature in SparkFeature if feature in found] == [SparkFeature.PUSHED_FILTERS]


def test_this_spark_has_the_features_of_its_version() -> None:
    since = [feature for feature in SparkFeature if version(feature.since) <= version(pyspark.__version__)]
    assert [feature for feature in SparkFeature if feature in INSTALLED] == since


def test_each_class_is_sparks_own_where_it_has_the_feature() -> None:
    modules = [import_module("pyspark.sql.datasource")]
    if SparkFeature.READ_LIMITS in INSTALLED:
        modules.append(import_module("pyspark.sql.streaming.datasource"))
    sparks = {name: value for module in modules for name, value in vars(module).items()}
    here = {name: value for name, value in vars(spark_features).items() if name in spark_features.__all__}
    shared = here.keys() & sparks.keys()
    assert shared or not list(filter(INSTALLED.__contains__, SparkFeature))
    assert {name: here[name] for name in shared} == {name: sparks[name] for name in shared}


def test_a_class_of_a_later_spark_has_an_empty_one_in_its_place() -> None:
    here = vars(spark_features)
    assert not [name for name in spark_features.__all__ if name not in here]
    assert issubclass(here["ReadMaxRows"], here["ReadLimit"])


@pytest.mark.parametrize(
    "option", ["maxOffsetsPerTrigger", "maxOffsetsPerPartition", "maxBytesPerTrigger", "minOffsetsPerTrigger"]
)
def test_a_limit_is_refused_with_the_version_that_takes_it(option: str) -> None:
    with pytest.raises(NotInThisSpark) as refused:
        parse_read_options(BASE | {option: "5"}, is_stream=True, features=SPARK_4_1)
    assert f"the option '{option}' needs Spark 4.2 or newer: Spark 4.1.4 passes no limits" in str(refused.value)
    assert "leave it out" in str(refused.value)


def test_pushed_conditions_are_refused_with_the_version_that_takes_them() -> None:
    with pytest.raises(NotInThisSpark, match=r"'pushFilters' needs Spark 4\.1 or newer: Spark 4\.0\.5"):
        parse_read_options(BASE | {"pushFilters": "true"}, is_stream=False, features=SPARK_4_0)
    assert parse_read_options(BASE | {"pushFilters": "true"}, is_stream=False, features=SPARK_4_1).pushes_filters


def test_what_needs_no_feature_is_read_by_every_spark() -> None:
    options = BASE | {"startingOffsets": "earliest", "minPartitions": "4", "groupId": "g", "onDataLoss": "record"}
    assert parse_read_options(options, is_stream=True, features=SPARK_4_0).group_id == "g"


def test_a_limit_of_a_batch_read_is_refused_as_by_every_spark() -> None:
    with pytest.raises(SparkOptionError, match="does not apply to a batch read"):
        parse_read_options(BASE | {"maxOffsetsPerTrigger": "5"}, is_stream=False, features=SPARK_4_0)


@pytest.mark.parametrize(
    ("option", "feature"),
    [
        ("pushFilters", SparkFeature.PUSHED_FILTERS),
        ("maxOffsetsPerTrigger", SparkFeature.READ_LIMITS),
        ("from_registry", SparkFeature.ARROW_FUNCTIONS),
    ],
)
def test_page_shows_from_which_version_an_option_is_taken(option: str, feature: SparkFeature) -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    versions = [cell.removeprefix(" Spark").strip() for cell in rows[0][1:]]
    (shown,) = [row[1:] for row in rows if f"`{option}`" in row[0]]
    refusing = [number for number, cell in zip(versions, shown, strict=True) if cell.strip() == "refused"]
    assert refusing == [number for number in versions if version(number) < version(feature.since)]
