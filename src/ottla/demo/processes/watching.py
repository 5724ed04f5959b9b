"""The online consumer: reads every topic as it grows, by a message stream, and counts minute by minute."""

from __future__ import annotations

import re
import time
from typing import Final

from ottla import ConsumerConnector
from ottla.demo.messages import Watch, Watched, send_message
from ottla.demo.minutes import Minutes
from ottla.demo.processes.entry import run_task
from ottla.demo.services import TOPICS
from ottla.runtime.clock import SystemClock

REPORT_EVERY_S: Final = 0.25
# The stream ends so long after its last message, and is gone on with after a report.
QUIET_MS: Final = 125
# The count of messages between two looks at the clock.
CHECK_EVERY: Final = 256
MINUTES_SHOWN: Final = 8


def watch(task: Watch) -> None:
    """Run until the parent ends the process."""
    connector = ConsumerConnector(
        task.bootstrap,
        group="online",
        client_id="online",
        auto_offset_reset="earliest",
        consumer_timeout_ms=QUIET_MS,
        fetch_max_wait_ms=100,
    )
    (stream,) = connector.create_message_streams_by_filter(1, allow="|".join(map(re.escape, TOPICS)))
    minutes = Minutes(list(TOPICS))
    clock = SystemClock()
    latest_ms = clock.monotonic_ms()
    tell_at_s = 0.0
    while True:
        for message in stream:
            minutes.add(message.topic, message.partition, message.timestamp_ms, message.value or b"")
            latest_ms = clock.monotonic_ms()
            if minutes.events_count % CHECK_EVERY == 0 and time.monotonic() >= tell_at_s:
                break
        if time.monotonic() >= tell_at_s:
            newest = minutes.newest(MINUTES_SHOWN)
            send_message(Watched(minutes.events_count, minutes.late_count, minutes.malformed_count, newest, latest_ms))
            tell_at_s = time.monotonic() + REPORT_EVERY_S


if __name__ == "__main__":
    run_task(Watch, watch)
