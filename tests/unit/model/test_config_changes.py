from __future__ import annotations

import pytest

from ottla.model.config_entries import ConfigChange, ConfigOperation, changed_overrides, checked_overrides
from ottla.model.errors import ConfigError
from ottla.model.settings import BrokerSettings

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def _after(overrides: dict[str, str], *changes: ConfigChange) -> dict[str, str]:
    return changed_overrides(overrides, changes, BrokerSettings())


def test_set_adds_and_delete_removes() -> None:
    assert _after({"retention.ms": "1"}, ConfigChange("segment.bytes", SET, "2048")) == {
        "retention.ms": "1",
        "segment.bytes": "2048",
    }
    assert _after({"retention.ms": "1"}, ConfigChange("retention.ms", DELETE, None)) == {}


def test_delete_of_a_value_that_is_not_there_changes_nothing() -> None:
    assert _after({}, ConfigChange("retention.ms", DELETE, None)) == {}


def test_append_starts_from_the_inherited_value_and_keeps_elements_single() -> None:
    assert _after({}, ConfigChange("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert _after({}, ConfigChange("cleanup.policy", APPEND, "delete")) == {"cleanup.policy": "delete"}


def test_subtract_takes_away() -> None:
    own = {"cleanup.policy": "compact,delete"}
    assert _after(own, ConfigChange("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}


def test_nothing_changes_when_one_change_is_bad() -> None:
    own = {"retention.ms": "1"}
    with pytest.raises(ConfigError):
        _after(own, ConfigChange("retention.ms", SET, "2"), ConfigChange("segment.bytes", SET, "many"))
    assert own == {"retention.ms": "1"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (ConfigChange("retention.ms", APPEND, "1"), "not a list"),
        (ConfigChange("retention.ms", SET, None), "no value"),
        (ConfigChange("retension.ms", SET, "1"), "not a setting of topics"),
        (ConfigChange("retension.ms", DELETE, None), "not a setting of topics"),
        (ConfigChange("cleanup.policy", APPEND, "shred"), "'shred' is not accepted"),
        (ConfigChange("remote.storage.enable", SET, "true"), "not offered"),
    ],
)
def test_bad_change_is_refused(change: ConfigChange, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _after({}, change)


def test_setting_changed_twice_in_one_request_is_refused() -> None:
    change = ConfigChange("retention.ms", SET, "1")
    with pytest.raises(ConfigError, match="twice"):
        _after({}, change, change)


def test_values_of_a_new_topic_are_kept_in_normal_form() -> None:
    assert checked_overrides({"preallocate": "TRUE", "segment.bytes": " 2048 "}) == {
        "preallocate": "true",
        "segment.bytes": "2048",
    }
    with pytest.raises(ConfigError):
        checked_overrides({"segment.bytes": None})
