"""The online consumer: reads every topic as it grows (confluent-kafka, by assign) and counts minute by minute."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from ottla.demo.messages import Watch, Watched, send_message
from ottla.demo.minutes import Minutes
from ottla.demo.processes.entry import run_task
from ottla.demo.services import TOPICS
from ottla.model.errors import OttlaError
from ottla.runtime.clock import SystemClock

REPORT_EVERY_S: Final = 0.25
MINUTES_SHOWN: Final = 8


class NotConsumed(OttlaError):
    """The consumer reported an error."""


def watch(task: Watch) -> None:
    """Run until the parent ends the process."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "client.id": "online",
            # The client requires a group's name even where it is not used.
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign(
        [TopicPartition(topic, index, OFFSET_BEGINNING) for topic, count in TOPICS.items() for index in range(count)]
    )
    minutes = Minutes(list(TOPICS))
    clock = SystemClock()
    latest_ms = clock.monotonic_ms()
    tell_at_s = 0.0
    while True:
        fetched = consumer.consume(2_000, REPORT_EVERY_S / 2)
        for message in fetched:
            if message.error() is not None:
                raise NotConsumed(str(message.error()))
            topic, partition = message.topic(), message.partition()
            assert topic is not None, "a record has a topic"
            assert partition is not None, "a record has a partition"
            minutes.add(topic, partition, message.timestamp()[1], message.value() or b"")
        if fetched:
            latest_ms = clock.monotonic_ms()
        if time.monotonic() >= tell_at_s:
            newest = minutes.newest(MINUTES_SHOWN)
            send_message(Watched(minutes.events_count, minutes.late_count, minutes.malformed_count, newest, latest_ms))
            tell_at_s = time.monotonic() + REPORT_EVERY_S


if __name__ == "__main__":
    run_task(Watch, watch)
