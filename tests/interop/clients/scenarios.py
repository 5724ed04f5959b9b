"""What the programs in other languages print: a line for each scenario."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

ENDS_WITHIN_S: Final = 240


def run_scenarios(command: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Every scenario's line, "ok" or why it failed.  What the program did not come to is told as that."""
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
    told = dict.fromkeys(names, f"not come to: {errors[-2000:]}")
    for line in output.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, reason = rest.partition(": ")
        if name in told and verdict in ("ok", "failed"):
            told[name] = "ok" if verdict == "ok" else f"{reason}\n{errors[-2000:]}"
    return told


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
