from __future__ import annotations

import copy
import json
import pickle

import pytest

from ottla.testing.topic import Topic, bootstrap_of

ORDERS = Topic("orders", "127.0.0.1:9092")


def test_topic_is_its_name_wherever_a_name_goes() -> None:
    assert ORDERS == "orders"
    assert {"orders": 1}[ORDERS] == 1
    assert f"{ORDERS}" == "orders"
    assert json.dumps(ORDERS) == '"orders"'


@pytest.mark.parametrize("again", [copy.copy(ORDERS), copy.deepcopy(ORDERS), pickle.loads(pickle.dumps(ORDERS))])
def test_copy_of_a_topic_knows_its_broker(again: object) -> None:
    assert isinstance(again, Topic)
    assert (again, again.bootstrap) == ("orders", "127.0.0.1:9092")


def test_broker_of_a_topic_is_its_own_unless_another_is_named() -> None:
    assert bootstrap_of(ORDERS, None) == "127.0.0.1:9092"
    assert bootstrap_of(ORDERS, "other:1") == "other:1"
    assert bootstrap_of("orders", "other:1") == "other:1"


def test_plain_name_without_a_broker_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"bootstrap=broker\.bootstrap"):
        bootstrap_of("orders", None)
