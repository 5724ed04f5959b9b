"""franz-go's own tests of its client pass on Ottla, except those that are listed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

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


def test_kgo_test_that_did_not_end_has_failed() -> None:
    assert read_results(OUTPUT) == {
        "TestOne": Result.SKIPPED,
        "TestTwo": Result.FAILED,
        "TestTwo/part": Result.PASSED,
    }
