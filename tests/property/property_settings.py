"""How many examples a property test runs: few by default, more by `OTTLA_PROPERTY_EXAMPLES`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(default_count: int) -> int:
    """The number of examples, seeds or mutations: the environment's when it is greater than the default."""
    return max(default_count, int(os.environ.get("OTTLA_PROPERTY_EXAMPLES", "0")))


def timeout_s(default_count: int) -> int:
    """How long a test may take: more examples, more time."""
    return 600 + 5 * (examples(default_count) - default_count)


def example_settings(default_count: int, *, steps_count: int = 50) -> settings:
    """Settings of a hypothesis test; tests/conftest.py has the common ones."""
    return settings(
        max_examples=examples(default_count),
        stateful_step_count=steps_count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
