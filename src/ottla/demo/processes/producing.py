"""One service of the site: produces its day with its own client library, counted by the audit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from ottla.demo.events import events_of
from ottla.demo.in_step import InStep
from ottla.demo.messages import Produce, Produced, Producing, send_message
from ottla.demo.processes.entry import run_task
from ottla.demo.senders import Sender, open_sender
from ottla.demo.services import BY_NAME
from ottla.runtime.clock import SystemClock

REPORT_EVERY_S: Final = 0.1
# The count of events between two checks of time and progress.
CHECK_EVERY: Final = 64
WAIT_S: Final = 0.002


def produce(task: Produce) -> None:
    clock = SystemClock()
    sender = open_sender(BY_NAME[task.service], task.bootstrap)
    began_ms = clock.monotonic_ms()
    sent_count = _send_all(task, sender)
    sender.finish()
    ended_ms = clock.monotonic_ms()
    send_message(Produced(sent_count, sender.acknowledged_count, began_ms, ended_ms))


def _send_all(task: Produce, sender: Sender) -> int:
    step = InStep(Path(task.steps_path), task.place)
    limit_ms = 0
    tell_at_s = time.monotonic()
    sent_count = 0
    for event in events_of(task.service, task.events_count, task.seed, task.day_start_ms):
        if event.arrival_ms >= limit_ms or sent_count % CHECK_EVERY == 0:
            step.reached(event.arrival_ms)
            sender.poll(0)
            while event.arrival_ms >= (limit_ms := step.limit_ms):
                sender.poll(WAIT_S)
                time.sleep(WAIT_S)
            if time.monotonic() >= tell_at_s:
                send_message(Producing(sent_count, sender.acknowledged_count))
                tell_at_s = time.monotonic() + REPORT_EVERY_S
        sender.send(event)
        sent_count += 1
    step.ended()
    return sent_count


if __name__ == "__main__":
    run_task(Produce, produce)
