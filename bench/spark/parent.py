"""What a process of the benchmark and its parent say to each other; for any Python that has Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def say_to_parent(words: Mapping[str, object]) -> None:
    print(json.dumps(words), flush=True)


def hear_from_parent() -> dict[str, Any]:
    """Waits for it; empty when the parent has no more to say."""
    line = sys.stdin.readline()
    found: dict[str, Any] = json.loads(line) if line else {}
    return found
