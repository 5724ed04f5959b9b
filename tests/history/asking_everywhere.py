"""A process that requests the latest offsets of all partitions from every broker, leader or not, until SIGTERM.

    python -m tests.history.asking_everywhere NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE

Clients query the leader that they know.  Only clients with old metadata reach a former leader that still
answers; this process always does.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from ottla.client.fetching.offsets import LATEST, IsolationLevel
from ottla.client.wire.address import Address, parse_bootstrap
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import dial_tcp
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.runtime.clock import SystemClock
from tests.history.operations import LatestOffset, Operation
from tests.history.recorder import Recorder, now_ns
from tests.history.signalled_event import set_on

ASK_EVERY_S: Final = 0.2
CALL_TIMEOUT_MS: Final = 2_000
_CLOCK: Final = SystemClock()
_OPTIONS: Final = ClientOptions(client_id="asker", connect_timeout_ms=CALL_TIMEOUT_MS)


# From the times of the request and of its answer, the partition, and its offset.
Note: TypeAlias = Callable[[int, int, int, int], Operation]


class Asker:
    """One broker, in a separate thread: one that does not answer delays no other."""

    def __init__(
        self, address: Address, request: ListOffsetsRequest, note: Note, recorder: Recorder, stopping: threading.Event
    ) -> None:
        self._address = address
        self._request = request
        self._note = note
        self._recorder = recorder
        self._stopping = stopping

    def run(self) -> None:
        while not self._stopping.wait(ASK_EVERY_S):
            with suppress(ClientError):
                connection = Connection.open(self._address, dial_tcp, _OPTIONS, _CLOCK, _deadline())
                try:
                    while not self._stopping.wait(ASK_EVERY_S):
                        self._ask(connection)
                finally:
                    connection.close()

    def _ask(self, connection: Connection) -> None:
        invoked_ns = now_ns()
        response = connection.call(ApiKey.LIST_OFFSETS, self._request, ListOffsetsResponse, _deadline())
        completed_ns = now_ns()
        for topic in response.topics:
            for each in topic.partitions:
                if not each.error_code:
                    self._recorder.add(self._note(invoked_ns, completed_ns, each.partition_index, each.offset))


def _deadline() -> Deadline:
    return Deadline(_CLOCK, CALL_TIMEOUT_MS)


def ask_everywhere(
    bootstrap: str, topic: str, partitions_count: int, file: str, isolation: IsolationLevel, note: Note
) -> None:
    """Until SIGTERM; `note` makes an operation of each answer."""
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions_count)]
    request = ListOffsetsRequest(
        isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=partitions)]
    )
    with Recorder(Path(file)) as recorder:
        askers = [Asker(address, request, note, recorder, stopping) for address in parse_bootstrap(bootstrap)]
        threads = [threading.Thread(target=asker.run) for asker in askers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    note = partial(LatestOffset, name)
    ask_everywhere(bootstrap, topic, partitions_count, file, IsolationLevel.READ_UNCOMMITTED, note)


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
