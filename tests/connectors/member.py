"""A member of a group in a separate process: `ottla.ConsumerConnector`, and a thread for each of its streams.

    python -m tests.connectors.member SPEC JOURNAL

records each message that a stream delivers, and closes at SIGTERM.  It uses only the public interface.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import ottla
from ottla.client.streams.errors import CommitFailed
from ottla.client.streams.message_stream import MessageStream
from tests.connectors.journal import Handed, Joined, Journal, Left, now_ns

AUTO_COMMIT_INTERVAL_MS: Final = 200


@dataclass(frozen=True)
class MemberSpec:
    """The arguments of a member.

    One of `bootstrap` and `zookeeper` names the home of its group.  With `commit_every` each stream also commits
    after this many messages.  `work_ms` is the processing time of each message.
    """

    name: str
    group: str
    topic: str
    bootstrap: str | None
    zookeeper: str | None
    session_timeout_ms: int
    streams_count: int = 1
    commit_every: int = 0
    work_ms: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MemberSpec:
        return cls(**json.loads(text))


def consume(spec: MemberSpec, number: int, stream: MessageStream[bytes, bytes], journal: Journal) -> None:
    """Read until the stream ends."""
    asked_ns = now_ns()
    for handed_count, message in enumerate(stream, start=1):
        got_ns = now_ns()
        journal.add(
            Handed(
                spec.name,
                asked_ns,
                got_ns,
                number,
                message.topic,
                message.partition,
                message.offset,
                (message.value or b"").decode(),
            )
        )
        if spec.work_ms:
            time.sleep(spec.work_ms / 1000)
        if spec.commit_every and handed_count % spec.commit_every == 0:
            try:
                stream.commit()
            except CommitFailed as error:
                # The partitions have moved meanwhile: it continues with its present ones.
                sys.stderr.write(f"{error}\n")
        asked_ns = now_ns()


def run(spec: MemberSpec, journal: Journal) -> int:
    """Until SIGTERM; 0 when every stream has ended regularly."""
    failures: list[str] = []
    connector = ottla.ConsumerConnector(
        spec.bootstrap,
        zookeeper=spec.zookeeper,
        group=spec.group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=AUTO_COMMIT_INTERVAL_MS,
        session_timeout_ms=spec.session_timeout_ms,
    )
    # Before the first delivery, so that readers of the journals know the process then.
    journal.add(Joined(spec.name, now_ns(), spec.group, os.getpid()))
    streams = connector.create_message_streams({spec.topic: spec.streams_count})[spec.topic]

    def read(number: int, stream: MessageStream[bytes, bytes]) -> None:
        try:
            consume(spec, number, stream, journal)
        except Exception:  # noqa: BLE001  any error of a stream is a problem of the run, and ends the member
            failures.append(traceback.format_exc())
            os.kill(os.getpid(), signal.SIGTERM)

    threads = [threading.Thread(target=read, args=each, daemon=True) for each in enumerate(streams)]
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGTERM})
    connector.close()
    for thread in threads:
        thread.join()
    journal.add(Left(spec.name, now_ns()))
    sys.stderr.writelines(failures)
    return 1 if failures else 0


def main(arguments: list[str]) -> int:
    # For all threads, so that `sigwait` gets it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    spec, journal = arguments
    return run(MemberSpec.from_json(spec), Journal(Path(journal)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
