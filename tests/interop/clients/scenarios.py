"""The output of the programs in other languages: a line for each scenario."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

ENDS_WITHIN_S: Final = 600


def outcomes_of(
    client: str, command: Callable[[], list[str]], scenarios: Sequence[str], broker: RunningBroker
) -> dict[str, str]:
    """Run a client's program once, all its scenarios after each other; skips where the client is unavailable."""
    try:
        program = command()
    except (KafkaUnavailable, PeerUnavailable) as reason:
        pytest.skip(f"{client} is not available: {reason}")
    return run_scenarios([*program, broker.bootstrap, client.replace(".", "-")], scenarios)


def run_scenarios(command: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Every scenario's outcome: "ok", the reason of its failure, or that the program did not reach it."""
    try:
        done = subprocess.run(
            [*command, *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
        output, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        output, errors = _text(late.stdout), f"ended after {ENDS_WITHIN_S} s\n{_text(late.stderr)}"
    outcomes = dict.fromkeys(names, f"not come to: {errors[-2000:]}")
    for line in output.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, reason = rest.partition(": ")
        if name in outcomes and verdict in ("ok", "failed"):
            outcomes[name] = "ok" if verdict == "ok" else f"{reason}\n{errors[-2000:]}"
    return outcomes


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
