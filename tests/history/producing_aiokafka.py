"""A process that sends numbered records through aiokafka's idempotent producer until SIGTERM.

python -m tests.history.producing_aiokafka NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from tests.history.numbered_sends import FLUSH_S, PAUSE_S, NumberedSends
from tests.history.recorder import Recorder


async def run(name: str, bootstrap: str, topic: str, partitions_count: int, recorder: Recorder) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    rng = random.Random(name)
    # Its time-out for a request is also that of a batch with all its retries.
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap.split(","), enable_idempotence=True, linger_ms=2, request_timeout_ms=60_000
    )
    sends = NumberedSends(name, recorder)

    async def send(partition: int) -> None:
        value = sends.begin(partition)

        def settled(future: asyncio.Future[Any]) -> None:
            if future.cancelled() or future.exception() is not None:
                sends.unknown(value)
            else:
                sends.stored(value, future.result().offset)

        future = await producer.send(topic, value=value.encode(), partition=partition)
        future.add_done_callback(settled)

    await producer.start()
    while not stopping.is_set():
        for _ in range(rng.randrange(1, 8)):
            await send(rng.randrange(partitions_count))
        try:
            await asyncio.wait_for(stopping.wait(), PAUSE_S)
        except TimeoutError:
            continue
    await asyncio.wait_for(producer.flush(), FLUSH_S)
    await producer.stop()


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    with Recorder(Path(file)) as recorder:
        asyncio.run(run(name, bootstrap, topic, partitions_count, recorder))


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
