"""Three brokers through kills: real producers and a group, and nothing that was promised is broken.

The long form is `./dev chaos cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from ottla.testing.zookeeper import ZooKeeperUnavailable
from tests.cluster.chaos_run import ClusterResult, run_cluster
from tests.history.clients import AIOKAFKA, CONSUMER, KAFKA_PYTHON, LIBRDKAFKA, RANGE, MemberKind, ProducerKind
from tests.interop.clients.sending import franz_go_producer, java_producer
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

SEED = 2011
RUNS_WITHIN_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BROUGHT_WITHIN_S + RUNS_WITHIN_S)]


def other_languages() -> Iterator[ProducerKind]:
    """Those that can be had here; the tests of the clients alone say why one cannot."""
    makers: Sequence[Callable[[], ProducerKind]] = (java_producer, franz_go_producer)
    for make in makers:
        try:
            yield make()
        except (KafkaUnavailable, PeerUnavailable):
            continue


def run(kinds: Sequence[MemberKind], plan: Sequence[str], producers: Sequence[ProducerKind]) -> ClusterResult:
    try:
        result = run_cluster(kinds, plan, seed=SEED, producers=producers)
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))
    print(result)  # noqa: T201  the counts are the result
    assert result.is_clean, str(result)
    assert sum(result.strikes.values()) == len(plan)
    return result


def test_kills_of_leaders_and_of_the_coordinator_are_not_seen_by_producers_of_any_library() -> None:
    producers = [LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA, *other_languages()]
    result = run(RANGE, ["kill-leader", "kill-coordinator", "kill-leader"], producers)
    assert result.report.figures["sends_ok"] > 1_000 * len(producers)
    assert result.report.figures["commits_ok"] > 10


def test_group_of_the_consumer_protocol_survives_its_coordinator_and_a_rolling_restart() -> None:
    result = run(CONSUMER, ["kill-coordinator", "stop-broker", "stop-broker"], [LIBRDKAFKA, LIBRDKAFKA])
    assert result.report.figures["commits_ok"] > 10


def test_paused_leaders_and_a_killed_zookeeper_break_no_promise() -> None:
    run(RANGE, ["pause-leader", "kill-zookeeper", "kill-all"], [LIBRDKAFKA, LIBRDKAFKA])
