"""Raw requests get the same answers from Ottla and from Apache Kafka 4.4, except for listed differences."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.probes.answers import Difference
from tests.interop.probes.comparing import (
    APACHE_KAFKA_SETTINGS,
    SCRIPTS,
    SETTINGS,
    Known,
    compare,
    is_one_epoch_more,
    read_known,
    unexplained,
)
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[str, str]]:
    """The addresses of Ottla and of Apache Kafka, fresh, with the same settings."""
    try:
        with (
            either_broker(BrokerKind.APACHE_KAFKA, APACHE_KAFKA_SETTINGS) as apache_kafka,
            either_broker(BrokerKind.OTTLA, SETTINGS) as ottla,
        ):
            yield ottla, apache_kafka
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.mark.interop
@pytest.mark.parametrize("script", SCRIPTS)
def test_answers_equal_those_of_apache_kafka_except_listed_differences(script: str, both: tuple[str, str]) -> None:
    assert unexplained(script, compare(script, *both), read_known()) == []


def test_every_listed_difference_names_a_script() -> None:
    assert {line.script for line in read_known()} <= set(SCRIPTS)


def test_epochs_may_differ_by_one_in_scripts_of_new_groups_only() -> None:
    one_more, two_more = (Difference("848: joins", "member_epoch", 1, epoch) for epoch in (2, 3))
    assert is_one_epoch_more("handover", one_more)
    assert not is_one_epoch_more("handover", two_more)
    assert not is_one_epoch_more("848_refusals", one_more)


def test_each_difference_requires_a_line_and_each_line_a_difference() -> None:
    found = [Difference("Fetch v4", "topics[0].error_code", 3, 0)]
    assert unexplained("fetch", found, [Known("fetch", "Fetch v*", "topics(0).error_code", "because")]) == []
    assert "Fetch v4" in unexplained("fetch", found, [])[0]
    assert "not there" in unexplained("fetch", [], [Known("fetch", "Fetch v4", "*", "because")])[0]
