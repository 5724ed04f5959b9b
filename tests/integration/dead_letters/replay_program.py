"""A replay that is killed at the COUNT-th STEP: `replay_program BOOTSTRAP TOPIC STEP COUNT [transactional]`."""

from __future__ import annotations

import os
import signal
import sys

from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import Replay
from ottla.dead_letters import replay as replays


def main(bootstrap: str, topic: str, fatal: str, count: int, *, is_transactional: bool) -> None:
    # So small that a few letters need several claims.
    replays.CLAIM_LETTERS_MAX = 7  # type: ignore[misc]
    # The next replay reads the claims when the broker has aborted the transaction that this one leaves open.
    replays.TRANSACTION_TIMEOUT_MS = 16_000  # type: ignore[attr-defined]
    replays.DELIVERY_TIMEOUT_MS = 8_000  # type: ignore[attr-defined]
    left = count

    def step(name: str) -> None:
        nonlocal left
        if name == fatal:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    with Cluster(bootstrap) as cluster:
        Replay(cluster, topic, step=step, is_transactional=is_transactional).run()


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), is_transactional="transactional" in sys.argv[5:])
