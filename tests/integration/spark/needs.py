"""The mark of tests that an earlier Spark cannot pass; `./dev suites` runs the others under each of them, too."""

from __future__ import annotations

import pytest

from ottla.spark.spark_features import INSTALLED, SparkFeature


def needs(feature: SparkFeature) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        feature not in INSTALLED, reason=f"Spark {INSTALLED.version} lacks {feature.name}, of Spark {feature.since}"
    )


def lacks(feature: SparkFeature) -> pytest.MarkDecorator:
    return pytest.mark.skipif(feature in INSTALLED, reason=f"Spark {INSTALLED.version} has {feature.name}")
