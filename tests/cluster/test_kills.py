"""Three brokers through kills: real producers and groups, and every guarantee holds.

Members of several libraries share a group, as they may: so one kill of its coordinator hits them all.  The long form is
`./dev chaos cluster`; Spark has a separate file.
"""

from __future__ import annotations

from collections import Counter
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
    PARTITIONS_COUNT,
    RANGE,
    MemberKind,
    ProducerKind,
)
from tests.history.operations import Commit, Outcome
from tests.history.report import Report
from tests.interop.clients.recorded_clients import franz_go_member, franz_go_producer, java_member, java_producer
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable
from tests.zookeeper_or_skip import skips_without_zookeeper

SEED = 2011
# Flushes of a loaded machine take seconds, the group rebalances again when they end its brokers' leases, and a client's
# own pauses add to them; ./dev chaos allows 10 s.
SILENCE_NS_MAX = 45_000_000_000
# Five producers and five members: a quarter of the usual rate, so that the machine serves them all.  The other runs of
# `./dev suites` have the usual one.
PAUSE_MS = 40
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
        result = run_cluster(kinds, plan, seed=SEED, producers=producers, silence_ns_max=SILENCE_NS_MAX)
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
    paced = [producer.paced(PAUSE_MS) for producer in producers]
    result = run(members, ["kill-leader", "kill-coordinator"], paced)
    check_unknown_commits(result)
    return result


def check_unknown_commits(result: ClusterResult) -> None:
    """Of a library that retries commits none is unknown.

    librdkafka sends an OffsetCommit again twice, its default count of retries, and returns the connection's error
    then: a kill closes the connection to the coordinator, and the new coordinator may come later than that, above all
    on a loaded machine.  A member commits one partition after the other, so a kill makes at most one
    round of its commits unknown: all partitions, where the member has them all.  kafka-python, aiokafka, Java's client
    and franz-go retry for half a minute or more; the last two end with an error that they return.
    """
    counts = Counter(commit.process for commit in result.unknown_commits)
    rounds_max = sum(result.strikes.values())
    for member, count in counts.items():
        assert LIBRDKAFKA.name in member, str(result)
        assert count <= rounds_max * PARTITIONS_COUNT, str(result)


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


@pytest.mark.parametrize(
    ("member", "count", "is_refused"),
    [("member1-kafka_python-range", 1, True), ("member0-librdkafka-range", 6, False), ("member0-librdkafka", 7, True)],
)
def test_unknown_commits_are_those_that_a_kill_explains(member: str, count: int, is_refused: bool) -> None:
    unknown = [Commit(member, 0, 1, Outcome.UNKNOWN, 0, offset, "_TRANSPORT") for offset in range(count)]
    result = ClusterResult(Report(), Counter({"kill-leader": 1}), [], 0.0, Counter(), unknown)
    if not is_refused:
        check_unknown_commits(result)
        return
    with pytest.raises(AssertionError, match="_TRANSPORT"):
        check_unknown_commits(result)
