from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from ottla.cli.demo import NEEDED, MissingPackages, check_requirements
from ottla.demo.events import KAFKA_PYTHON, SERVICES
from ottla.runtime.installation import install_command


def test_error_names_all_that_is_missing_and_its_hint_how_to_install_it() -> None:
    with pytest.raises(MissingPackages) as raised:
        check_requirements(lambda module: module not in {"rich", "kafka"})
    assert str(raised.value) == "the demo needs kafka-python and rich"
    assert raised.value.hint == install_command("demo")


def test_nothing_is_raised_when_all_is_there() -> None:
    check_requirements(lambda module: True)


def packages_of(extra: str, extras: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """As pip sees it: an extra may name others of this project."""
    for text in extras[extra]:
        name, _, own_extras = text.split(">")[0].rstrip("]").partition("[")
        yield name
        for own_extra in own_extras.split(",") if name == "ottla" else ():
            yield from packages_of(own_extra, extras)


def test_everything_needed_is_in_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(NEEDED.values()) <= set(packages_of("demo", project["optional-dependencies"]))


def test_the_client_that_needs_libraries_for_codecs_sends_with_pythons_own() -> None:
    assert {service.codec for service in SERVICES if service.client == KAFKA_PYTHON} == {"gzip"}
