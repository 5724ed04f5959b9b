"""The fixture `ottla_spark` of the pytest plugin where a session runs already; test_spark_fixture starts one."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.testing import Namespace, produce
from tests.integration.page_snippets import PYTHON, ROOT, read_snippets, the_snippet

pytestmark = pytest.mark.spark


def test_spark_test_of_the_guide_counts_produced_records_in_the_session_that_runs(
    spark: SparkSession, ottla_spark: SparkSession, namespace: Namespace
) -> None:
    assert ottla_spark.sparkContext is spark.sparkContext
    page = read_snippets(ROOT / "docs" / "guide" / "testing.md")
    names: dict[str, Any] = {"produce": produce}
    exec(the_snippet(page, PYTHON, "def test_count_by_spark").code, names)
    names["test_count_by_spark"](ottla_spark, namespace)
