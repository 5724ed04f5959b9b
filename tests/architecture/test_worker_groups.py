"""How tests are divided among workers: what starts a JVM is in a heavy group, and every name there exists."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.architecture.source_tree import ROOT, files_below
from tests.worker_groups import HEAVY, LONG, SEPARATE, SHORT, START_ORDER, group_of, start_rank

# Tests that import these start a JVM, or may.
STARTS_A_JVM: Final = frozenset(
    {
        "tests.peers.apache_kafka",
        "tests.peers.java_tool",
        "tests.peers.either_broker",
        "tests.interop.test_apache_tools",
        "tests.interop.clients.sending",
        "ottla.testing.cluster",
    }
)
# Tests with these fixtures in tests/integration get Apache Kafka, too, unless the file has its own.
BOTH_BROKERS: Final = frozenset({"apache_kafka", "bootstrap", "cluster", "new_topic"})
_MARK: Final = re.compile(r"^ *(?:@|pytestmark = .*)?pytest\.mark\.spark\b", re.MULTILINE)
# Only the names of the two kinds of brokers.
ONLY_NAMES: Final = frozenset({"tests/interop/test_expected_failures.py"})


def _imports(source: str) -> set[str]:
    if not any(name in source for name in STARTS_A_JVM):
        return set()
    tree = ast.parse(source)
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None}
    return found | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


def _asks_for_both_brokers(source: str) -> bool:
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    asked = {
        argument.arg
        for function in functions
        if function.name.startswith("test_") or function.decorator_list
        for argument in function.args.args
    }
    return bool(asked & BOTH_BROKERS - {function.name for function in functions})


def _test_files() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in files_below(ROOT / "tests", ".py") if path.name.startswith("test_")]


def test_file_that_starts_a_jvm_is_in_a_heavy_group() -> None:
    light = [
        file
        for file in _test_files()
        if _imports((ROOT / file).read_text(encoding="utf-8")) & STARTS_A_JVM
        and group_of(f"{file}::test") not in HEAVY.values()
        and file not in ONLY_NAMES
    ]
    assert not light, f"add them to HEAVY in tests/worker_groups.py: {light}"


def test_file_that_asks_for_apache_kafka_shares_it_with_the_others() -> None:
    """Else each worker that runs one of them starts one of its own."""
    alone = [
        file
        for file in _test_files()
        if file.startswith("tests/integration/test_")
        and _asks_for_both_brokers((ROOT / file).read_text(encoding="utf-8"))
        and group_of(f"{file}::test") != "jvm"
    ]
    assert not alone, f"add them to HEAVY in tests/worker_groups.py: {alone}"


def test_rule_of_both_brokers_finds_a_fixture_and_knows_a_files_own() -> None:
    test = "def test_it(bootstrap: str) -> None: ..."
    assert _asks_for_both_brokers(test)
    assert not _asks_for_both_brokers(f"@fixture\ndef bootstrap() -> str: ...\n{test}")


def test_rule_of_heavy_files_finds_an_import() -> None:
    assert _imports("def f():\n    from tests.peers.java_tool import run_tool") & STARTS_A_JVM


@pytest.mark.parametrize("prefix", [*HEAVY, *SEPARATE, *LONG, *SHORT])
def test_every_group_names_tests_that_exist(prefix: str) -> None:
    assert any(file.startswith(prefix) for file in _test_files())


def test_file_that_starts_spark_is_in_a_group_of_spark() -> None:
    marked = [file for file in _test_files() if _MARK.search((ROOT / file).read_text(encoding="utf-8"))]
    astray = [file for file in marked if not group_of(f"{file}::test").startswith("spark")]
    assert "tests/integration/test_guide_of_spark.py" in marked
    assert not astray, f"add them to HEAVY in tests/worker_groups.py: {astray}"


def test_group_of_a_test_is_its_heavy_group_itself_or_its_file() -> None:
    assert group_of("tests/peers/test_raw_client.py::test_it[1]") == "jvm"
    assert group_of("tests/kill/test_kill.py::test_it") == "tests/kill/test_kill.py::test_it"
    assert group_of("tests/unit/cli/log/test_log.py::test_it[a::b]") == "tests/unit/cli/log/test_log.py"


def test_heavy_groups_start_first_and_long_tests_before_files() -> None:
    groups = [
        "tests/unit/cli/log/test_log.py",
        "tests/property/test_log.py",
        "tests/kill/test_kill.py::test_it",
        *reversed(START_ORDER),
    ]
    assert sorted(groups, key=start_rank) == groups[::-1]


def test_every_heavy_group_has_its_place_in_the_start_order() -> None:
    assert sorted(START_ORDER) == sorted(set(HEAVY.values()))
