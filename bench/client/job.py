"""What one client process is asked to do, and what it answers: both are one line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Final

from bench.raw_client.load import LoadFailed

# The same for every producer.
BATCH_BYTES: Final = 256 << 10
LINGER_MS: Final = 5
BUFFER_BYTES: Final = 32 << 20
# How many messages a set has, as in the paper.
SET_MESSAGES: Final = 50
# How often a producer looks at the clock, in messages: a few milliseconds of the slowest.
MESSAGES_PER_LOOK: Final = 100
PLAIN: Final = "plain"
# A consumer that gets nothing for so long has lost something.
SILENCE_S: Final = 10.0
OVERTIME_S: Final = 45


@dataclass(frozen=True, slots=True)
class Job:
    """One load.  A producer sends for `seconds`; a consumer reads `messages`, from the topic's start."""

    contender: str
    module: str
    function: str
    bootstrap: str
    topic: str
    value_bytes: int
    codec: str = PLAIN
    partitions: int = 1
    seconds: float = 0.0
    messages: int = 0

    @property
    def compression(self) -> str | None:
        return None if self.codec == PLAIN else self.codec

    def words(self) -> str:
        return json.dumps(asdict(self))


def run_job(job: Job) -> dict[str, float]:
    """In a process of its own, to its end.  Raises LoadFailed with what the process said."""
    with start_job(job) as process:
        return finish_job(job, process)


def start_job(job: Job) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.client.process", job.words()]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish_job(job: Job, process: subprocess.Popen[str]) -> dict[str, float]:
    timeout_s = job.seconds + OVERTIME_S
    try:
        output, problems = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise LoadFailed(f"{job.contender}, {job.function} {job.topic}: not done after {timeout_s:g} s") from None
    if process.returncode != 0:
        raise LoadFailed(f"{job.contender}, {job.function} {job.topic}: {problems.strip()[-1000:]}")
    return {name: float(value) for name, value in json.loads(output.splitlines()[-1]).items()}
