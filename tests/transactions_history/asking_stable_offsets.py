"""A process that requests the last stable offsets of all results from every broker, leader or not, until SIGTERM.

python -m tests.transactions_history.asking_stable_offsets NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE
"""

from __future__ import annotations

import sys
from functools import partial

from ottla.client.fetching.offsets import IsolationLevel
from tests.history.asking_everywhere import ask_everywhere
from tests.history.operations import LastStableOffset
from tests.transactions_history.worker import results_topic


def main(name: str, bootstrap: str, topic: str, partitions_count: int, file: str) -> None:
    note = partial(LastStableOffset, name)
    ask_everywhere(bootstrap, results_topic(topic), partitions_count, file, IsolationLevel.READ_COMMITTED, note)


if __name__ == "__main__":
    _, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)
