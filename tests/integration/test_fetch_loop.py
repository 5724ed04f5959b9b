"""The fetch thread and its connector, in states that a broker alone does not cause."""

from __future__ import annotations

import threading
import uuid

from ottla.client.groups.subscription import Subscription
from ottla.client.streams.connector_core import core_of
from ottla.client.streams.fetch_loop import FetchLoop
from ottla.client.streams.settings import StreamSettings
from ottla.client.wire.destination.destination import Destination
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.wake_up import WakeUp
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.unit.client.streams.scripted import Desk


def test_offset_query_is_sent_again_when_no_broker_could_answer() -> None:
    desk = Desk(auto_offset_reset="earliest")
    desk.start(0)
    loop = FetchLoop(desk.engine, "127.0.0.1:1", desk.settings, WakeUp(), name="consumer of a test")
    while RequestMeter.snapshot([loop.meter]).connections_failed_count < 2:
        loop.turn()
    # A thread that is closed before it starts only closes its resources.
    loop.close(0)
    loop.run()


def test_close_by_the_handler_of_a_signal_that_interrupts_a_stream_ends_it(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    core = core_of(Destination(bootstrap), None, f"signal-{uuid.uuid4().hex[:10]}", StreamSettings())
    core.open(Subscription({new_topic(): 1}))
    engine = core.opened()
    with engine.lock:  # as a stream that waits for its next message
        core.close(30_000, threading.get_ident())
    eventually(lambda: engine.has_left)
    core.close(30_000, threading.get_ident())
