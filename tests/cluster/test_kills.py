"""Three brokers through kills: real producers and groups, and every guarantee holds.

Members of several libraries share a group, as they may: so one kill of its coordinator hits them all.  The long form is
`./dev chaos cluster`; Spark has a separate file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import pytest

from tests.cluster.chaos_run import ClusterResult, run_cluster
from tests.history.clients import (
    AIOKAFKA,
    AIOKAFKA_RANGE,
    CONSUMER,
    COOPERATIVE,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    RANGE,
    MemberKind,
    ProducerKind,
)
from tests.interop.clients.recorded_clients import franz_go_member, franz_go_producer, java_member, java_producer
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable
from tests.zookeeper_or_skip import skips_without_zookeeper

SEED = 2011
RUNS_WITHIN_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BROUGHT_WITHIN_S + RUNS_WITHIN_S)]

Kind = TypeVar("Kind")

OTHER_MEMBERS: Final[Mapping[str, Callable[[str], MemberKind]]] = {"java": java_member, "franz-go": franz_go_member}
OTHER_PRODUCERS: Final[Mapping[str, Callable[[], ProducerKind]]] = {
    "java": java_producer,
    "franz-go": franz_go_producer,
}
LIBRARIES: Final = ("librdkafka", "kafka_python", "aiokafka", *OTHER_MEMBERS)


def those_here(*makers: Callable[[], Kind]) -> Iterator[Kind]:
    for make in makers:
        try:
            yield make()
        except (KafkaUnavailable, PeerUnavailable):
            continue


def members_of_other_languages(protocol: str) -> Iterator[MemberKind]:
    return those_here(*(lambda make=make: make(protocol) for make in OTHER_MEMBERS.values()))


def run(kinds: Sequence[MemberKind], plan: Sequence[str], producers: Sequence[ProducerKind]) -> ClusterResult:
    with skips_without_zookeeper():
        result = run_cluster(kinds, plan, seed=SEED, producers=producers)
    print(result)  # noqa: T201  the counts are the result
    assert result.is_clean, str(result)
    assert sum(result.strikes.values()) == len(plan)
    assert result.report.figures["commits_ok"] > 10
    return result


@pytest.fixture(scope="module")
def kills_under_all_libraries() -> ClusterResult:
    """A producer and a member of every library, while leaders and the group's coordinator are killed."""
    producers = [LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA, *those_here(*OTHER_PRODUCERS.values())]
    members = [*RANGE, AIOKAFKA_RANGE, *members_of_other_languages("range")]
    result = run(members, ["kill-leader", "kill-coordinator", "kill-leader"], producers)
    assert result.report.figures["commits_unknown"] == 0
    return result


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_sees_no_error_and_no_loss_through_kills_of_leaders_and_of_the_coordinator(
    library: str, kills_under_all_libraries: ClusterResult
) -> None:
    if library in OTHER_MEMBERS:
        try:
            OTHER_PRODUCERS[library]()
        except (KafkaUnavailable, PeerUnavailable) as reason:
            pytest.skip(f"{library} is not available: {reason}")
    records = kills_under_all_libraries.records
    (sent,) = (count for name, count in records.items() if name.endswith(f"-{library}"))
    (read,) = (count for name, count in records.items() if name.endswith(f"-{library}-range"))
    assert sent > 1_000
    assert read > 1_000


def test_group_of_the_consumer_protocol_survives_its_coordinator_and_a_rolling_restart() -> None:
    members = [*CONSUMER, *members_of_other_languages("consumer")]
    run(members, ["kill-coordinator", "stop-broker", "stop-broker"], [LIBRDKAFKA, LIBRDKAFKA])


def test_paused_leaders_and_a_killed_zookeeper_break_no_guarantee() -> None:
    # Without franz-go: without a coordinator for longer than its session, it reports an error to the application.
    members = [*COOPERATIVE, *those_here(lambda: java_member("cooperative-sticky"))]
    run(members, ["pause-leader", "kill-zookeeper", "kill-all"], [LIBRDKAFKA, LIBRDKAFKA])
