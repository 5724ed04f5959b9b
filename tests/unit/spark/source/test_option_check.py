"""Options are checked before Spark says whether they are for a read, a stream or a write."""

from __future__ import annotations

import pytest

from ottla.spark.errors import SparkOptionError
from ottla.spark.source.data_source import check_options

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "t"},
        {"SUBSCRIBE": "t", "endingOffsets": "latest"},
        {"subscribe": "t", "maxOffsetsPerTrigger": "5"},
        {"topic": "t", "kafka.acks": "1"},
        {"checkpointLocation": "/c"},
        {},
    ],
)
def test_options_that_one_of_them_takes_pass(options: dict[str, str]) -> None:
    check_options(BASE | options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "t", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "a b"}, "'a b'"),
        ({"startingOffsets": "earliest"}, "none of the options 'subscribe'"),
        ({"topic": "t", "kafka.compresion.type": "lz4"}, "did you mean 'kafka.compression.type'"),
        ({"topic": "t", "kafka.acks": "3"}, "'kafka.acks' cannot be '3'"),
        ({"subscribe": "t", "kafka.security.protocol": "TLS"}, "'TLS' is not a security protocol"),
    ],
)
def test_options_that_none_of_them_takes_are_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(SparkOptionError) as caught:
        check_options(BASE | options)
    assert named in str(caught.value)


def test_a_missing_address_is_reported_first() -> None:
    with pytest.raises(SparkOptionError, match=r"'kafka\.bootstrap\.servers' is missing"):
        check_options({"subscribe": "t"})


def test_options_of_a_table_in_a_catalog_are_refused_with_what_works_instead() -> None:
    """Spark gives them twice, and beside them what the catalog says of the table."""
    given = BASE | {"subscribe": "t", "startingOffsets": "earliest"}
    of_catalog = {"provider": "ottla", "owner": "me"}
    with pytest.raises(SparkOptionError, match="a view keeps them: CREATE TEMPORARY VIEW"):
        check_options(given | {f"option.{name}": value for name, value in given.items()} | of_catalog)


def test_options_that_are_no_copies_are_unknown_as_ever() -> None:
    with pytest.raises(SparkOptionError, match=r"'option\.subscribe' is unknown"):
        check_options(BASE | {"assign": '{"t": [0]}', "option.subscribe": "t"})
