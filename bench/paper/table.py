"""The paper's two figures as one Markdown table."""

from __future__ import annotations

from typing import Final

from bench.study import Observed, markdown_table, number

TITLES: Final = {
    "ottla": ("Ottla", "`ack`: flushed before acknowledged", "`os`: page cache"),
    "apache-kafka": ("Apache Kafka", "`flush.messages=1`", "defaults: page cache"),
    "rabbitmq": ("RabbitMQ", "persistent, confirmed", "transient"),
    "activemq": ("ActiveMQ", "persistent", "not persistent"),
}
HEADINGS: Final = (
    *("system", "form", "client", "producer, 1 at a time", "producer, 50", "consumer"),
    *("broker CPU µs/message", "memory MB"),
)
NOTES: Final = """\
Messages/s, medians; one producer or one consumer, 200 bytes a message, one partition or queue. "1 at a time": each
message is a request of its own, five unacknowledged at most. "50": batches of 50, five on their way; RabbitMQ,
confirmed: 250 messages unacknowledged, transient: no confirms at all; ActiveMQ: persistent in transactions of 50,
others without waiting. Consumers fetch or prefetch up to 1,000 messages (200 kB); those of queues acknowledge many at
once. Broker CPU: producer 1, producer 50, consumer. Clients: each system's own Java client, and confluent-kafka
(librdkafka) for the two that it speaks to."""


def paper_table(observed: Observed) -> str:
    rows = [
        row
        for form in ("durable", "fast")
        for system, titles in TITLES.items()
        for client in ("librdkafka", "java")
        if (row := _row(observed, system, titles, form, client))
    ]
    return f"{markdown_table(HEADINGS, rows)}\n\n{NOTES}"


def _row(observed: Observed, system: str, titles: tuple[str, str, str], form: str, client: str) -> list[str]:
    cells = [f"{form}-{client}-{what}" for what in ("produce-b1", "produce-b50", "consume")]
    if not any((cell, system) in observed.rounds for cell in cells):
        return []
    rates = [number(observed.median(cell, system, "messages_per_s")) for cell in cells]
    costs = [number(observed.median(cell, system, "broker_cpu_us_per_message")) for cell in cells]
    memory = [observed.median(cell, system, "rss_mb") for cell in cells]
    largest = max((value for value in memory if value is not None), default=None)
    return [titles[0], titles[1 if form == "durable" else 2], client, *rates, " / ".join(costs), number(largest)]
