"""The fixture `ottla_spark` of the pytest plugin, in a separate pytest, as a user runs it."""

from __future__ import annotations

import pytest

from tests.integration.guide_tests import written_from_the_guide

pytest_plugins = ["pytester"]


def test_spark_test_of_the_guide_counts_produced_records(pytester: pytest.Pytester) -> None:
    written_from_the_guide(pytester)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-k", "spark", timeout=240)
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
