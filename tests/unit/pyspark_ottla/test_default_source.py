"""Spark imports `pyspark_ottla` in every session: it must never fail, and say what is missing when it is used."""

from __future__ import annotations

import importlib
import re
import sys

import pytest
from pyspark.sql.datasource import DataSource

import pyspark_ottla
from ottla.runtime.installation import install_command
from ottla.spark.source.data_source import OttlaDataSource


def test_spark_finds_the_source_under_the_name_that_it_looks_for() -> None:
    assert pyspark_ottla.DefaultSource is OttlaDataSource
    assert issubclass(pyspark_ottla.DefaultSource, DataSource)
    assert pyspark_ottla.DefaultSource.name() == "ottla"


def test_a_missing_package_is_told_when_the_source_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "ottla.spark.source.data_source", None)
    try:
        source = importlib.reload(pyspark_ottla).DefaultSource
        assert source.name() == "ottla"
        with pytest.raises(ImportError, match=f"'ottla' cannot be used: .*; {re.escape(install_command('spark'))}"):
            source(options={})
    finally:
        monkeypatch.undo()
        importlib.reload(pyspark_ottla)
