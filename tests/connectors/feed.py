"""A producer in a separate process: `ottla.Producer`, at a steady pace to every partition of a range.

    python -m tests.connectors.feed NAME BOOTSTRAP TOPIC FIRST END MESSAGES_PER_SECOND JOURNAL

records each acknowledged message, and closes at SIGTERM, after which every sent message is acknowledged.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

import ottla
from ottla.client.producing.delivery import Delivery, Receipt
from tests.connectors.journal import Journal, Sent, now_ns

# As many may be without an acknowledgement; while a partition has no leader the feed waits.
UNSETTLED_MAX: Final = 2_000
TURN_S: Final = 0.02


def feed(name: str, bootstrap: str, topic: str, partitions: range, per_second: float, journal: Journal) -> None:
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    unsettled: deque[tuple[str, Delivery[Receipt]]] = deque()
    sent_count = 0
    began_s = time.monotonic()
    with ottla.Producer(bootstrap) as producer:
        while not stopped or unsettled:
            due_count = int((time.monotonic() - began_s) * per_second)
            while not stopped and sent_count < due_count and len(unsettled) < UNSETTLED_MAX:
                value = f"{name}-{sent_count}"
                partition = partitions[sent_count % len(partitions)]
                unsettled.append((value, producer.send(topic, value.encode(), partition=partition)))
                sent_count += 1
            settled = []
            while unsettled and (stopped or unsettled[0][1].is_done or len(unsettled) >= UNSETTLED_MAX):
                value, delivery = unsettled.popleft()
                receipt = delivery.wait()
                settled.append(Sent(name, now_ns(), receipt.topic, receipt.partition, receipt.offset, value))
            journal.add(*settled)
            time.sleep(TURN_S)


def main(arguments: list[str]) -> int:
    name, bootstrap, topic, first, end, per_second, journal = arguments
    feed(name, bootstrap, topic, range(int(first), int(end)), float(per_second), Journal(Path(journal)))
    return 0


if __name__ == "__main__":
    sys.stdout = open(os.devnull, "w")
    sys.exit(main(sys.argv[1:]))
