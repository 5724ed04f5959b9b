"""How a producer and its process end: each case is a separate program."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.test_paper_producer import records_of, values_of

ENDS_WITHIN_S: Final = 240


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings={"num.partitions": "1"}) as running:
        yield running


def run_program(code: str, bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    begin = f"import ottla\nBOOTSTRAP = {bootstrap!r}\n"
    return subprocess.run(
        [sys.executable, *options, "-c", begin + code],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )


def stored(broker: RunningBroker, topic: str) -> list[bytes | None]:
    with Cluster(broker.bootstrap) as cluster:
        return values_of(cluster, topic)


def test_end_of_the_process_sends_buffered_messages(broker: RunningBroker) -> None:
    code = """
producer = ottla.Producer(BOOTSTRAP, linger_ms=60_000)
for number in range(1000):
    producer.send("left", b"%d" % number)
"""
    done = run_program(code, broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert stored(broker, "left") == [b"%d" % number for number in range(1000)]


def test_end_of_the_process_reports_lost_messages(broker: RunningBroker) -> None:
    code = """
producer = ottla.Producer(BOOTSTRAP, linger_ms=60_000, max_request_bytes=3_000_000)
producer.send("lost", bytes(2_000_000))
"""
    done = run_program(code, broker.bootstrap)
    assert "MessagesNotDelivered: 1 message was not delivered" in done.stderr, done.stderr


def test_end_of_the_process_waits_a_bounded_time_for_a_broker_that_is_down() -> None:
    with RunningBroker(settings={"num.partitions": "1"}) as broker:
        code = """
producer = ottla.Producer(BOOTSTRAP)
producer.send("t", b"v").wait()
input()
producer.send("t", b"v")
"""
        begin = f"import ottla\nBOOTSTRAP = {broker.bootstrap!r}\nprint(1, flush=True)\n"
        program = subprocess.Popen(
            [sys.executable, "-c", begin + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdout.readline()
        eventually(lambda: stored(broker, "t"), lambda found: found == [b"v"])
        broker.pause()
        _, errors = program.communicate("continue\n", timeout=ENDS_WITHIN_S)
        broker.resume()
    assert "MessagesNotDelivered" in errors


def test_end_of_the_process_reports_lost_messages_when_its_wait_is_interrupted() -> None:
    with RunningBroker(settings={"num.partitions": "1"}) as broker:
        code = """
import atexit
producer = ottla.Producer(BOOTSTRAP)
producer.send("t", b"v").wait()
input()
producer.send("t", b"v")
atexit.register(lambda: print("the end", flush=True))
"""
        begin = f"import ottla\nBOOTSTRAP = {broker.bootstrap!r}\nprint(1, flush=True)\n"
        program = subprocess.Popen(
            [sys.executable, "-c", begin + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdout.readline()
        eventually(lambda: stored(broker, "t"), lambda found: found == [b"v"])
        broker.pause()
        program.stdin.write("continue\n")
        program.stdin.flush()
        # Exit handlers run in reverse order: from here on the process waits for its producer.
        assert program.stdout.readline() == "the end\n"
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=ENDS_WITHIN_S)
        broker.resume()
    assert "MessagesNotDelivered: 1 message was not delivered" in errors


@pytest.mark.parametrize("place", ["finish", "refuse", "announce", "join"])
def test_interrupt_at_any_point_of_the_end_hides_no_loss(broker: RunningBroker, place: str) -> None:
    """Ctrl-C at the start of the wait, before it, and during it."""
    code = f"""
import atexit, sys
producer = ottla.Producer(BOOTSTRAP, linger_ms=60_000)
producer.send("hidden-{place}", b"v")
left = ["ottla.client.producing.producer_core", "ottla.client.producing.producer_monitor"]
def interrupt(frame, event, _):
    if event == "call" and frame.f_code.co_name == {place!r} and frame.f_globals["__name__"] in left:
        left.clear()
        raise KeyboardInterrupt
atexit.register(lambda: sys.setprofile(interrupt))
"""
    done = run_program(code, broker.bootstrap)
    assert "KeyboardInterrupt" not in done.stderr, done.stderr
    assert "MessagesNotDelivered" in done.stderr or stored(broker, f"hidden-{place}"), done.stderr


def test_producer_that_is_dropped_warns_and_loses_nothing(broker: RunningBroker) -> None:
    code = """
import threading, warnings
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    producer = ottla.Producer(BOOTSTRAP, linger_ms=60_000)
    producer.send("dropped", b"v")
    del producer
assert [each.category for each in warned] == [ResourceWarning], warned
assert str(warned[0].message) == f"<Producer to {BOOTSTRAP}> was not closed"
(thread,) = [each for each in threading.enumerate() if each.name == "ottla-producer"]
thread.join()
"""
    done = run_program(code, broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert stored(broker, "dropped") == [b"v"]


def test_forked_process_is_refused_and_its_parent_continues(broker: RunningBroker) -> None:
    code = """
import os
from ottla.client.producing.errors import ProducerClosed
producer = ottla.Producer(BOOTSTRAP, linger_ms=60_000)
producer.send("forked", b"first")
delivery = producer.send("forked", b"second")
child = os.fork()
if child == 0:
    refused = 0
    for call in (lambda: producer.send("forked", b"v"), lambda: producer.send("other", b"v"), delivery.wait):
        try:
            call()
        except ProducerClosed as error:
            refused += "forked" in str(error)
    producer.close()
    with ottla.Producer(BOOTSTRAP) as own:
        own.send("forked", b"child").wait()
    os._exit(refused)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 3, status
producer.close()
assert delivery.wait(0).offset == 2
"""
    done = run_program(code, broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert stored(broker, "forked") == [b"child", b"first", b"second"]


def test_interrupted_sender_leaves_whole_messages_only(broker: RunningBroker) -> None:
    """Ctrl-C at any moment of `send`: every stored message has its own key, and the producer continues."""
    code = """
import signal
producer = ottla.Producer(BOOTSTRAP, linger_ms=1)
producer.send("interrupted", b"0", key=b"0").wait()
signal.signal(signal.SIGALRM, signal.default_int_handler)
hits = 0
number = 0
while hits < 300:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.000_013 * (hits % 40))
        while True:
            number += 1
            text = b"%d" % number
            producer.send("interrupted", text, key=text)
    except KeyboardInterrupt:
        hits += 1
producer.send("interrupted", b"end", key=b"end").wait(60_000)
producer.close()
"""
    done = run_program(code, broker.bootstrap)
    assert done.returncode == 0, done.stderr
    with Cluster(broker.bootstrap) as cluster:
        records = records_of(cluster, "interrupted")
    assert [record.key for record in records] == [record.value for record in records]
    assert records[-1].value == b"end"
    assert len(records) > 1
