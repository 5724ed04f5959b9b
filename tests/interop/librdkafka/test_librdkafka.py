"""librdkafka's own broker tests pass on Ottla, except those that are listed; with both group protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.interop.expected_failures import Result, judge, read_entries
from tests.interop.librdkafka.build import runner_dir
from tests.interop.librdkafka.plan import (
    NEED_KAFKA_TOOLS,
    NO_AUTO_CREATE,
    SETTINGS,
    entries_of,
    jobs,
    jobs_without_auto_create,
    write_kafka_tools,
)
from tests.interop.librdkafka.runner import Job, Outcome, run_jobs
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.slow]

EXPECTED: Final = read_entries(Path(__file__).with_name("expected_failures.txt"))
JOBS: Final = [*jobs(with_long=False), *jobs_without_auto_create()]
# The first test of the session waits for the runner's build and runs them all.
ALL_WITHIN_S: Final = BROUGHT_WITHIN_S + 900


@pytest.fixture(scope="session")
def kafka_tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that leads the tests to Apache Kafka's tools; empty where these are unavailable."""
    try:
        return write_kafka_tools(tmp_path_factory.mktemp("kafka-tools"))
    except KafkaUnavailable:
        return {}


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory, kafka_tools: dict[str, str]) -> dict[str, Outcome]:
    try:
        runner = runner_dir()
    except PeerUnavailable as reason:
        pytest.skip(f"librdkafka's tests are not available: {reason}")
    scratch = tmp_path_factory.mktemp("librdkafka")
    found: dict[str, Outcome] = {}
    for settings, planned in ((SETTINGS, jobs(with_long=False)), (NO_AUTO_CREATE, jobs_without_auto_create())):
        chosen = [job for job in planned if kafka_tools or job.number not in NEED_KAFKA_TOOLS]
        with either_broker(BrokerKind.OTTLA, settings) as bootstrap:
            found |= run_jobs(chosen, runner, bootstrap, scratch, kafka_tools)
    return found


@pytest.mark.timeout(ALL_WITHIN_S)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_librdkafka_tests_pass_or_fail_as_listed(
    job: Job, outcomes: dict[str, Outcome], kafka_tools: dict[str, str]
) -> None:
    if job.number in NEED_KAFKA_TOOLS and not kafka_tools:
        pytest.skip("Apache Kafka's tools are not available, which this test calls")
    of_job = {name: outcome for name, outcome in outcomes.items() if job.is_of(name)}
    expected = entries_of(job, EXPECTED, BrokerKind.OTTLA)
    verdict = judge({name: outcome.result for name, outcome in of_job.items()}, expected, BrokerKind.OTTLA)
    output = "\n".join(outcome.output for outcome in of_job.values())
    assert verdict.problems == [], output
    assert of_job
    if all(outcome.result is Result.SKIPPED for outcome in of_job.values()):
        pytest.skip("librdkafka's runner skips it on such a broker")


def test_every_listed_failure_names_a_test_that_runs() -> None:
    planned = [*jobs(with_long=True), *jobs_without_auto_create()]
    assert [entry.test for entry in EXPECTED if not any(job.is_of(entry.test) for job in planned)] == []
