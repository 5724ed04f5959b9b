"""franz-go's own tests of its client pass on Ottla, except those that are listed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from ottla.client.admin.access import set_password
from ottla.client.wire.cluster import Cluster
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret
from ottla.testing.broker import RunningBroker
from tests.interop.expected_failures import Result, judge, read_entries
from tests.interop.franz_go.running import ENDS_WITHIN_S, SETTINGS, read_results, run_kgo_tests
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.unavailable import PeerUnavailable

EXPECTED: Final = read_entries(Path(__file__).with_name("expected_failures.txt"))
OUTPUT: Final = """\
=== RUN   TestOne
=== PAUSE TestOne
=== RUN   TestTwo
=== RUN   TestTwo/part
--- SKIP: TestOne (0.00s)
    --- PASS: TestTwo/part (0.10s)
"""


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(BROUGHT_WITHIN_S + ENDS_WITHIN_S + 120)
def test_kgo_tests_pass_or_fail_as_listed() -> None:
    with either_broker(BrokerKind.OTTLA, SETTINGS) as bootstrap:
        try:
            run = run_kgo_tests(bootstrap)
        except PeerUnavailable as reason:
            pytest.skip(f"franz-go's tests are not available: {reason}")
    assert judge(run.results, EXPECTED, BrokerKind.OTTLA).problems == [], run.output
    assert run.results["TestTxnEtl"] is Result.PASSED


@pytest.mark.interop
@pytest.mark.timeout(BROUGHT_WITHIN_S + 120)
def test_kgo_tests_log_in_by_scram_and_not_without_the_password() -> None:
    with RunningBroker(also_listen=["SASL_PLAINTEXT://127.0.0.1:0"]) as broker:
        with Cluster(broker.bootstrap) as cluster:
            set_password(cluster, "alice", Secret("of-alice"), [SaslMechanism.SCRAM_SHA_256])
        logins = {"KGO_TEST_SCRAM": "alice:of-alice", "KGO_TEST_SCRAM_SEEDS": broker.addresses["SASL_PLAINTEXT"]}
        try:
            run = run_kgo_tests(broker.bootstrap, "SCRAM", logins)
        except PeerUnavailable as reason:
            pytest.skip(f"franz-go's tests are not available: {reason}")
    assert run.results == dict.fromkeys(("TestSCRAMAuth", "TestSCRAMAuthBadCredentials"), Result.PASSED), run.output


def test_kgo_test_that_did_not_end_has_failed() -> None:
    assert read_results(OUTPUT) == {
        "TestOne": Result.SKIPPED,
        "TestTwo": Result.FAILED,
        "TestTwo/part": Result.PASSED,
    }
