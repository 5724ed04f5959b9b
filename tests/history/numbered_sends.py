"""One producer's records, numbered: each is recorded when it starts, and when its outcome is known."""

from __future__ import annotations

import os
from typing import Final

from tests.history.operations import Outcome, Send
from tests.history.recorder import Recorder, now_ns

# Between two groups of records; the producers in Java and Go read it, too.
PAUSE_VARIABLE: Final = "OTTLA_TEST_SEND_PAUSE_MS"
PAUSE_S: Final = int(os.environ.get(PAUSE_VARIABLE, "10")) / 1000
# The time for all sends to be settled.
FLUSH_S: Final = 60.0


class NumberedSends:
    """Calls come from any thread of the producer's library, for one value one after the other."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name = name
        self._recorder = recorder
        self._number = 0
        self._under_way: dict[str, tuple[int, int]] = {}

    def begin(self, partition: int) -> str:
        """The next value, which is about to be sent to this partition."""
        value = f"{self._name}:{self._number}"
        self._number += 1
        invoked_ns = now_ns()
        self._under_way[value] = invoked_ns, partition
        # Before it is sent: otherwise the started sends of a killed producer would be unknown.
        self._recorder.add(Send(self._name, invoked_ns, invoked_ns, Outcome.UNKNOWN, partition, value, -1))
        return value

    def stored(self, value: str, offset: int) -> None:
        self._settle(value, Outcome.OK, offset)

    def failed(self, value: str) -> None:
        """The record is not stored and will not be: the error guarantees that."""
        self._settle(value, Outcome.FAILED, -1)

    def unknown(self, value: str) -> None:
        self._settle(value, Outcome.UNKNOWN, -1)

    def _settle(self, value: str, outcome: Outcome, offset: int) -> None:
        invoked_ns, partition = self._under_way.pop(value)
        self._recorder.add(Send(self._name, invoked_ns, now_ns(), outcome, partition, value, offset))
