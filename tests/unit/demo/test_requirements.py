from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ottla.demo.requirements import NEEDED, MissingPackages, check_requirements
from ottla.demo.services import SERVICES

# kafka-python's extras, and what each brings.
PACKAGE_OF_EXTRA = {"lz4": "lz4", "snappy": "python-snappy", "zstd": "zstandard"}


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
    declared: set[str] = set()
    for text in (*extras["demo"], *extras["spark"]):
        name, _, own_extras = text.split(">")[0].rstrip("]").partition("[")
        declared.add(name)
        declared.update(PACKAGE_OF_EXTRA.get(extra, extra) for extra in own_extras.split(","))
    assert set(NEEDED.values()) <= declared


def test_codecs_that_a_service_sends_can_be_read() -> None:
    """The reader that counts is kafka-python, which needs a library for each of them (gzip is Python's own)."""
    read = {"gzip", *(codec for codec, package in PACKAGE_OF_EXTRA.items() if package in NEEDED.values())}
    assert {service.codec for service in SERVICES} <= read
