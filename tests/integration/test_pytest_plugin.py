"""The pytest plugin, as its users run it: each test here runs pytest on inner tests, in another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ottla.runtime.installation import install_command
from tests.eventually import eventually
from tests.integration.guide_tests import written_from_the_guide

pytest_plugins = ["pytester"]

# The time that a broker without a pause between generations, a session, and a busy machine may take.
ENDS_WITHIN_S = 240


@pytest.fixture(autouse=True)
def plugin_is_installed() -> None:
    assert "ottla" in {each.name for each in entry_points(group="pytest11")}, "install the project again (./dev does)"


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=ENDS_WITHIN_S)


def test_tests_of_a_session_share_a_broker_and_no_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from ottla.testing import assert_produced, consume_all, produce

        seen = []

        def test_one(ottla_broker, ottla_namespace):
            orders = ottla_namespace.topic("orders")
            produce(orders, ["paid"])
            assert_produced(orders, ["paid"])
            assert orders.bootstrap == ottla_broker.bootstrap
            seen.append((ottla_broker.pid, orders))

        def test_two(ottla_broker, ottla_namespace):
            from ottla.client.admin.admin import Admin
            from ottla.client.wire.cluster import Cluster

            with Cluster(ottla_broker.bootstrap) as cluster:
                assert Admin(cluster).list_topics() == []
            orders = ottla_namespace.topic("orders")
            assert consume_all(orders) == []
            seen.append((ottla_broker.pid, orders))

        def test_both_had_the_same_broker_and_other_topics():
            (one, first), (two, second) = seen
            assert one == two
            assert first != second
            assert first.startswith("test_one-")
        """
    )
    run(pytester).assert_outcomes(passed=3)


def test_broker_and_its_directory_are_gone_after_the_session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(ottla_broker, request):
            (request.config.rootpath / "left").write_text(f"{ottla_broker.pid} {ottla_broker.data_dir}")
        """
    )
    run(pytester).assert_outcomes(passed=1)
    pid, directory = (pytester.path / "left").read_text().split()
    assert not Path(directory).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_what_a_test_does_to_the_broker_is_undone_after_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import time

        import pytest

        from ottla.testing import assert_produced, produce

        def kill(broker):
            broker.kill()

        def stop(broker):
            broker.stop()

        def pause(broker):
            broker.pause()

        def fill(broker):
            broker.fill_disk()

        def slow(broker):
            broker.slow_down(answers_ms=3_600_000, flushes_ms=100)

        def age(broker):
            broker.clock.advance(days=365, time_outs=True)

        def all_at_once(broker):
            for each in (fill, slow, age, pause):
                each(broker)

        @pytest.fixture
        def client(ottla_namespace):
            "Needs the broker when the test has ended."
            topic = ottla_namespace.topic("client", configs={"message.timestamp.type": "LogAppendTime"})
            yield
            produce(topic, ["one"])
            now_ms = time.time() * 1000
            assert_produced(topic, ["one"])
            assert abs(ottla_broker_of[0].clock.now_ms() - now_ms) < 60_000

        ottla_broker_of = []

        @pytest.mark.parametrize("harm", [kill, stop, pause, fill, slow, age, all_at_once])
        def test_harm(ottla_broker, client, harm):
            ottla_broker_of[:] = [ottla_broker]
            harm(ottla_broker)
        """
    )
    run(pytester).assert_outcomes(passed=7)


def test_what_a_fixture_does_to_the_broker_is_undone_after_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def stopped(ottla_namespace, ottla_broker):
            ottla_namespace.topic("orders")
            yield
            ottla_broker.kill()

        def test_one(stopped):
            pass

        def test_two(ottla_broker):
            assert ottla_broker.is_running
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_crashed_broker_is_an_error_of_its_test_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, signal, time

        def test_one(ottla_broker, ottla_namespace):
            ottla_namespace.topic("orders")
            os.kill(ottla_broker.pid, signal.SIGSEGV)
            while ottla_broker.is_running:
                time.sleep(0.01)

        def test_two(ottla_broker):
            assert ottla_broker.is_running
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*the broker was killed by SIGSEGV, which no test had requested*"])


def test_failed_test_shows_its_brokers_log_and_a_passed_one_does_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_passed(ottla_namespace):
            ottla_namespace.topic("orders")

        def test_failed(ottla_namespace):
            ottla_namespace.topic("payments")
            assert False

        def test_without():
            assert False
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*ottla_broker (call)*", "*topic.created topic=test_failed-*.payments *"])
    result.stdout.no_fnmatch_line("*topic.created topic=test_passed-*")
    assert result.stdout.str().count("ottla_broker (") == 1


def test_settings_of_the_session_are_those_of_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def ottla_settings():
            return {"num.partitions": "5"}
        """
    )
    pytester.makepyfile(
        """
        from ottla.testing import Record, assert_produced, produce

        def test_it(ottla_broker):
            produce("orders", [Record("paid", partition=4)], bootstrap=ottla_broker.bootstrap)
            assert_produced("orders", [Record("paid", partition=4)], bootstrap=ottla_broker.bootstrap)
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_workers_of_xdist_have_a_broker_each(pytester: pytest.Pytester) -> None:
    """More tests than a worker gets at first, so that both run some."""
    pytester.makepyfile(
        """
        import pytest

        from ottla.testing import assert_produced, produce

        @pytest.mark.parametrize("number", range(12))
        def test_it(ottla_broker, ottla_namespace, number, worker_id, request):
            orders = ottla_namespace.topic("orders", exact=True)
            produce(orders, [str(number)])
            ottla_broker.clock.advance(days=1)
            assert_produced(orders, [str(number)])
            (request.config.rootpath / f"{worker_id}-{number}").write_text(ottla_broker.bootstrap)
        """
    )
    run(pytester, "-n", "2", "--dist", "load").assert_outcomes(passed=12)
    addresses: dict[str, set[str]] = {}
    for path in pytester.path.glob("gw*"):
        addresses.setdefault(path.name.partition("-")[0], set()).add(path.read_text())
    assert sorted(addresses) == ["gw0", "gw1"]
    assert all(len(each) == 1 for each in addresses.values())
    assert addresses["gw0"] != addresses["gw1"]


@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_spark_fixture_skips_and_names_the_missing_package(pytester: pytest.Pytester, module: str) -> None:
    pytester.makeconftest(f"import sys; sys.modules[{module!r}] = None")
    pytester.makepyfile("def test_it(ottla_spark): pass")
    result = run(pytester, "-rs")
    result.assert_outcomes(skipped=1)
    assert f"ottla_spark needs {module}: {install_command('spark')}" in result.stdout.str()


def test_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    count = written_from_the_guide(pytester)
    assert count > 5
    run(pytester, "-k", "not spark", "-W", "error").assert_outcomes(passed=count - 1, deselected=1)


def test_plugin_imports_little_until_a_test_uses_it() -> None:
    program = """
import json, sys
import pytest
before = set(sys.modules)
import ottla.testing.plugin
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    # The package itself, and where its version is.
    own = {"ottla", "ottla.model", "ottla.model.version"}
    assert set(json.loads(done.stdout)) == own | {"ottla.testing", "ottla.testing.plugin"}


def test_testing_library_imports_without_pytest() -> None:
    program = """
import sys
sys.modules["pytest"] = None
import ottla.testing
from ottla.testing import ControlledBroker, assert_produced, produce
assert set(ottla.testing.__all__) <= set(dir(ottla.testing))
with ControlledBroker() as broker, broker.namespace() as namespace:
    orders = namespace.topic("orders")
    produce(orders, ["paid"])
    assert_produced(orders, ["paid"])
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=ENDS_WITHIN_S)


def test_interrupted_session_leaves_no_processes_and_no_files(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys, time

        def test_it(ottla_broker, ottla_namespace, request):
            ottla_namespace.topic("orders")
            path = request.config.rootpath / "left"
            path.with_suffix(".new").write_text(f"{ottla_broker.pid} {ottla_broker.data_dir}")
            path.with_suffix(".new").rename(path)
            sys.stdin.read()
        """
    )
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        command, cwd=pytester.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as tests:
        left = pytester.path / "left"
        eventually(left.exists)
        # As a terminal does: to the whole group.
        os.killpg(tests.pid, signal.SIGINT)
        told, _ = tests.communicate(timeout=ENDS_WITHIN_S)
    assert "KeyboardInterrupt" in told
    assert "Refused" not in told
    pid, directory = left.read_text().split()
    assert not Path(directory).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
