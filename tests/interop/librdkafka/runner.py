"""Runs numbered tests of librdkafka's runner against one broker, several at a time, each in a separate process.

The runner is meant to run all in one process, but there one test's abort loses the results of the others.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.interop.expected_failures import Result

PARALLEL: Final = 6
# Timing-critical tests fail on a loaded machine: the runner's option for threefold time-outs.
TIMEOUT_MULTIPLIER: Final = "3"
KILLED_AFTER_S: Final = 420
OUTPUT_LINES_KEPT: Final = 25

_OUTCOME: Final = re.compile(r"=+ Test (\S+) (PASSED|FAILED|SKIPPED) =+")
_FAILURE: Final = re.compile(r'### Test "(\d{4}\w*)[^"]*" failed at')
_STARTED: Final = re.compile(r"=+ Running test (\w+) =+")
_COLOUR: Final = re.compile(r"\x1b\[\d*m")


class Job(NamedTuple):
    """One number in one mode; the suffix distinguishes the results of the modes."""

    number: str
    suffix: str = ""
    scenario: str = "default"
    environment: tuple[tuple[str, str], ...] = ()
    # The quick form of a test leaves out some of its parts.
    is_quick: bool = True

    @property
    def name(self) -> str:
        return f"{self.number}{self.suffix}"

    def is_of(self, test: str) -> bool:
        """Whether a test's name, such as 0045_subscribe_update@consumer, is of this number in this mode."""
        name, at, mode = test.partition("@")
        return name.startswith(self.number) and at + mode == self.suffix


class Outcome(NamedTuple):
    result: Result
    seconds: float
    output: str


def run_jobs(
    jobs: Iterable[Job],
    runner_dir: Path,
    bootstrap: str,
    scratch: Path,
    extra: Mapping[str, str],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Outcome]:
    """Every test's outcome, by its name and its job's suffix.

    `extra` goes into each process' environment, `properties` into the configuration of its clients.
    """
    given = {
        "bootstrap.servers": bootstrap,
        "test.topic.random": "true",
        "test.timeout.multiplier": TIMEOUT_MULTIPLIER,
        **properties,
    }
    configuration = "".join(f"{name}={value}\n" for name, value in given.items())

    def run(job: Job) -> dict[str, Outcome]:
        return _run_job(job, runner_dir, configuration, scratch, {**extra, "BROKERS": bootstrap})

    with ThreadPoolExecutor(PARALLEL) as pool:
        outcomes: dict[str, Outcome] = {}
        for found in pool.map(run, jobs):
            outcomes |= found
    return outcomes


def _run_job(
    job: Job, runner_dir: Path, configuration_text: str, scratch: Path, extra: Mapping[str, str]
) -> dict[str, Outcome]:
    configuration = scratch / f"{job.name}.conf"
    configuration.write_text(configuration_text)
    environment = {
        **os.environ,
        **extra,
        **dict(job.environment),
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "RDKAFKA_TEST_CONF": str(configuration),
        "TESTS": job.number,
        "TEST_KAFKA_VERSION": "4.1.0",
    }
    # Its reports go through stdio's buffer, which an abort would lose.
    quick = ("-Q",) if job.is_quick else ()
    command = ("stdbuf", "-oL", "./test-runner", "-L", *quick, "-p1", "-s", job.scenario)
    started = time.monotonic()
    output = _run(command, runner_dir, environment)
    return _outcomes(job, output, time.monotonic() - started)


def _run(command: tuple[str, ...], runner_dir: Path, environment: Mapping[str, str]) -> str:
    with subprocess.Popen(
        command,
        cwd=runner_dir,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    ) as process:
        try:
            output, _ = process.communicate(timeout=KILLED_AFTER_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nkilled after {KILLED_AFTER_S} s".encode()
    return _COLOUR.sub("", output.decode(errors="replace"))


def _outcomes(job: Job, output: str, seconds: float) -> dict[str, Outcome]:
    """A test that started and reported no result has aborted its process: it failed.

    The exit status of the process is ignored: it also counts threads that a test leaves running.
    """
    results = dict.fromkeys(_STARTED.findall(output), Result.FAILED)
    results |= {name: Result(result.lower()) for name, result in _OUTCOME.findall(output)}
    results |= dict.fromkeys(_FAILURE.findall(output), Result.FAILED)
    results = {name: result for name, result in results.items() if name.startswith(job.number)}
    if not results:
        results[job.number] = Result.FAILED
    last_lines = "\n".join(output.splitlines()[-OUTPUT_LINES_KEPT:])
    return {f"{name}{job.suffix}": Outcome(result, seconds, last_lines) for name, result in results.items()}
