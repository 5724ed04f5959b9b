"""The lists of expected failures: each deviation is a problem, in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.expected_failures import Entry, Result, judge, read_entries
from tests.interop.suites.running import read_report
from tests.interop.suites.suite import SUITES, NotThatSource
from tests.peers.either_broker import BrokerKind

FAILS = Entry(frozenset({BrokerKind.OTTLA}), False, "a::b", "because")
VARIES = FAILS._replace(may_pass=True)


def problems(result: Result | None, *entries: Entry, broker: BrokerKind = BrokerKind.OTTLA) -> list[str]:
    results = {} if result is None else {"a::b": result}
    return judge(results, entries, broker).problems


def test_listed_failure_and_unlisted_pass_are_no_problem() -> None:
    assert problems(Result.FAILED, FAILS) == []
    assert problems(Result.PASSED) == []
    assert problems(Result.SKIPPED) == []


def test_unlisted_failure_is_a_problem() -> None:
    assert problems(Result.FAILED) == ["failed and is not listed: a::b"]
    assert problems(Result.FAILED, FAILS, broker=BrokerKind.APACHE_KAFKA) == ["failed and is not listed: a::b"]


@pytest.mark.parametrize("result", [Result.PASSED, Result.SKIPPED])
def test_listed_test_that_does_not_fail_is_a_problem_unless_it_varies(result: Result) -> None:
    assert problems(result, FAILS) == [f"{result} and is listed as failing (because): a::b"]
    assert problems(result, VARIES) == []


def test_listed_test_that_was_not_run_or_is_listed_twice_is_a_problem() -> None:
    assert problems(None, FAILS) == ["listed and was not run: a::b"]
    assert "listed twice: a::b" in problems(Result.FAILED, FAILS, FAILS)


def test_entries_are_read_with_reasons_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# a remark\n\nboth  varies  a::b[x y] -- first\n      second\n")
    assert read_entries(path) == [Entry(frozenset(BrokerKind), True, "a::b[x y]", "first second")]
    path.write_text("both fails a::b\n")
    with pytest.raises(ValueError, match=r"list.txt:1"):
        read_entries(path)


def test_report_counts_a_broken_teardown_as_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    cases = '<testcase classname="m" name="a"/><testcase classname="m" name="a"><error/></testcase>'
    cases += (
        '<testcase classname="m" name="b"><skipped/></testcase><testcase classname="m" name="c"><failure/></testcase>'
    )
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert read_report(path) == {"m::a": Result.FAILED, "m::b": Result.SKIPPED, "m::c": Result.FAILED}


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_every_list_of_a_suite_can_be_read_and_another_tree_is_refused(suite: object, tmp_path: Path) -> None:
    name = next(name for name, each in SUITES.items() if each is suite)
    assert all(entry.reason for entry in read_entries(SUITES[name].expected_failures))
    with pytest.raises(NotThatSource, match="is no tree of"):
        SUITES[name].version_of(tmp_path)
