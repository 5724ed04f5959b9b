"""Groups of connectors on an Ottla broker, by Kafka's group protocol: `./dev chaos connectors --home broker`."""

from __future__ import annotations

import secrets

import pytest

from tests.connectors.homes import BrokerHome
from tests.connectors.run import SHORT, run


@pytest.mark.slow
def test_group_on_a_broker_keeps_its_guarantees() -> None:
    plan = ["herd", "pause-past-session", "kill", "grow", "kill-broker"]
    seed = secrets.randbelow(1 << 31)
    result = run(BrokerHome, plan, seed=seed, size=SHORT)
    told = f"seed={seed} {' '.join(plan)}\n{result}"
    print(told)  # noqa: T201  the seed is a result, too
    assert result.is_clean, told
    assert sum(result.strikes.values()) == len(plan), told
