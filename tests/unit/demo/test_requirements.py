from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ottla.demo.requirements import NEEDED, MissingPackages, check_requirements


def test_one_line_names_what_is_missing_and_how_to_install_it() -> None:
    with pytest.raises(MissingPackages) as raised:
        check_requirements(lambda module: module not in {"rich", "kafka"})
    assert str(raised.value) == "the demo needs kafka-python and rich: pip install 'ottla[demo]'"
    assert "\n" not in str(raised.value)


def test_nothing_is_raised_when_all_is_there() -> None:
    check_requirements(lambda module: True)


def test_everything_needed_is_in_the_extras() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {text.split(">")[0] for text in (*extras["demo"], *extras["spark"])}
    assert set(NEEDED.values()) <= declared
