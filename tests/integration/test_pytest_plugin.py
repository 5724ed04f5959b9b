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


def test_clients_are_closed_after_their_test_and_before_its_topics(pytester: pytest.Pytester) -> None:
    """Each library's, with the arguments in either order; a consumer that stayed in its group would keep it."""
    pytester.makepyfile(
        """
        import asyncio
        import sys

        import pytest

        from ottla.client.groups.groups import GroupAdmin
        from ottla.client.wire.cluster import Cluster
        from ottla.testing import assert_produced

        loop = asyncio.new_event_loop()

        @pytest.fixture
        def orders(ottla_namespace):
            topic = ottla_namespace.topic("orders", partitions=2)
            yield topic
            # The client is closed: what it had not sent yet is there.
            assert_produced(topic, ["paid"])

        @pytest.fixture
        def group(ottla_namespace):
            return ottla_namespace.group("billing")

        def test_confluent_kafka(ottla_confluent_kafka, orders, group):
            ottla_confluent_kafka.producer(orders).produce(orders, "paid")
            consumer = ottla_confluent_kafka.consumer(orders, group=group)
            assert consumer.poll(20).value() == b"paid"

        def test_confluent_kafka_that_the_test_closes(orders, ottla_confluent_kafka):
            producer = ottla_confluent_kafka.producer(orders)
            producer.produce(orders, "paid")
            producer.flush()
            consumer = ottla_confluent_kafka.consumer(orders, settings={"fetch.wait.max.ms": 10})
            assert consumer.poll(20).value() == b"paid"
            consumer.close()

        def test_kafka_python(ottla_kafka_python, orders, group):
            ottla_kafka_python.producer(orders, settings={"linger_ms": 50}).send(orders, b"paid")
            consumer = ottla_kafka_python.consumer(orders, group=group, settings={"consumer_timeout_ms": 20_000})
            assert next(consumer).value == b"paid"

        def test_aiokafka(ottla_aiokafka, orders, group):
            async def read():
                producer = ottla_aiokafka.producer(orders)
                await producer.start()
                await producer.send_and_wait(orders, b"paid")
                async with ottla_aiokafka.consumer(orders, group=group) as consumer:
                    assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"paid"

            # It is not closed after the test, as by the plugins for asyncio.
            loop.run_until_complete(read())

        def test_no_group_is_left(ottla_broker):
            loop.close()
            with Cluster(ottla_broker.bootstrap) as cluster:
                assert GroupAdmin(cluster).list_groups() == []

        @pytest.mark.parametrize(
            ("fixture", "module"),
            [
                ("ottla_confluent_kafka", "confluent_kafka"),
                ("ottla_kafka_python", "kafka"),
                ("ottla_aiokafka", "aiokafka"),
            ],
        )
        def test_fixture_without_its_library(request, monkeypatch, fixture, module):
            monkeypatch.setitem(sys.modules, module, None)
            with pytest.raises(pytest.skip.Exception, match=f"{fixture} needs .*: pip install"):
                request.getfixturevalue(fixture)
        """
    )
    run(pytester, "-W", "error").assert_outcomes(passed=8)


def test_cluster_is_shared_and_what_a_test_does_to_it_is_undone(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nottla_cluster_brokers = 2")
    pytester.makepyfile(
        """
        import os, signal, time
        from pathlib import Path

        from ottla.testing import assert_produced, produce

        def test_disturbed(ottla_cluster, ottla_cluster_namespace):
            orders = ottla_cluster_namespace.topic("orders")
            produce(orders, ["paid"])
            assert sorted(ottla_cluster.partition(orders, 0).replicas) == [1, 2]
            leader = ottla_cluster.leader_of(orders, 0)
            ottla_cluster.broker(leader).kill()
            ottla_cluster.broker(3 - leader).clock.advance(days=1)
            ottla_cluster.tree.pause()

        def test_as_before(ottla_cluster, ottla_cluster_namespace):
            assert {broker.is_running for broker in ottla_cluster.brokers.values()} == {True}
            assert abs(ottla_cluster.broker(1).clock.now_ms() - time.time() * 1000) < 60_000
            orders = ottla_cluster_namespace.topic("orders")
            produce(orders, ["paid"])
            assert_produced(orders, ["paid"])
            assert [topic.name for topic in ottla_cluster.topics()] == [orders]

        def test_crashed(ottla_cluster):
            os.kill(ottla_cluster.broker(2).pid, signal.SIGSEGV)
            while ottla_cluster.broker(2).is_running:
                time.sleep(0.01)

        def test_failed(ottla_cluster, ottla_cluster_namespace):
            ottla_cluster_namespace.topic("payments")
            assert False

        def test_left(ottla_cluster, request):
            brokers = ottla_cluster.brokers.values()
            places = [str(ottla_cluster.data_dir), *(str(broker.data_dir) for broker in brokers)]
            pids = [str(ottla_cluster.tree.pid), *(str(broker.pid) for broker in brokers)]
            (request.config.rootpath / "left").write_text(" ".join(places + pids))
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=4, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*the broker was killed by SIGSEGV, which no test had requested*", "*ottla_cluster 1 (call)*"]
    )
    left = (pytester.path / "left").read_text().split()
    assert not [place for place in left if Path(place).exists()]
    assert not [pid for pid in left if pid.isdecimal() and Path(f"/proc/{pid}").exists()]


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
