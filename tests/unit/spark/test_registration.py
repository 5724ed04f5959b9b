"""The names under which the source is registered, without a session."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from ottla.spark.registration import BadLabel, labelled
from ottla.spark.source.data_source import OttlaDataSource


@pytest.mark.parametrize("label", ["clicks", "clicks, searches", "page.views_2-1", "click.*"])
def test_a_labelled_source_is_the_source_under_a_second_name(label: str) -> None:
    source = labelled(OttlaDataSource, label)
    assert (source.name(), OttlaDataSource.name()) == (f"ottla:{label}", "ottla")
    made = source({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"})
    assert isinstance(made, OttlaDataSource)


def test_a_labelled_source_reaches_a_process_that_plans() -> None:
    copied = cloudpickle.loads(cloudpickle.dumps(labelled(OttlaDataSource, "clicks")))  # type: ignore[no-untyped-call]
    assert copied.name() == "ottla:clicks"
    assert issubclass(copied, OttlaDataSource)


@pytest.mark.parametrize("label", ["", " clicks", "clicks\n", "a/b", "x" * 300, "`clicks`"])
def test_a_label_that_a_plan_cannot_show_is_refused(label: str) -> None:
    with pytest.raises(BadLabel, match="the label is"):
        labelled(OttlaDataSource, label)
