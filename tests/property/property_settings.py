"""How many examples a property test runs, and how many of its cases an exhaustive test.

It is a sixth in `./dev test`, other ones in each run, and all in `./dev suites`, which sets `ALL_EXAMPLES`.
`OTTLA_PROPERTY_EXAMPLES` raises every number of examples.
"""

from __future__ import annotations

import os
import random
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

ALL_EXAMPLES: Final = "OTTLA_ALL_EXAMPLES"
# Each run searches from other seeds, so that runs add up; fewer than these would be hardly a search.
SHARE: Final = 6
EXAMPLES_MIN: Final = 5
# Of a test that asks `is_tried`: `./dev suites` runs it, too.
exhaustive: Final = pytest.mark.exhaustive
_FIRST_TRIED: Final = random.randrange(SHARE)


def examples(default_count: int) -> int:
    """The number of seeds or mutations: the environment's when it is greater than the default."""
    return max(default_count, int(os.environ.get("OTTLA_PROPERTY_EXAMPLES", "0")))


def examples_max(all_count: int) -> int:
    """Hypothesis' `max_examples`, where all are `all_count`."""
    return examples(max(all_count // _share(), min(all_count, EXAMPLES_MIN)))


def is_tried(number: int) -> bool:
    """Whether an exhaustive test tries its case of this number, such as a crash before its nth file operation."""
    share = _share()
    return number % share == _FIRST_TRIED % share


def _share() -> int:
    return 1 if os.environ.get(ALL_EXAMPLES) else SHARE


def timeout_s(default_count: int) -> int:
    """How long a test may take: more examples, more time."""
    return 600 + 5 * (examples(default_count) - default_count)


def example_settings(all_count: int, *, steps_count: int = 50) -> settings:
    """Settings of a hypothesis test; tests/conftest.py has the common ones."""
    return settings(
        max_examples=examples_max(all_count),
        stateful_step_count=steps_count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
