"""The names that users import."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Final

import pytest

import ottla
import ottla.errors

# Where a user meets an error: what these modules define is public.
HOMES_OF_ERRORS: Final = ("ottla.client.producing.errors", "ottla.client.streams.errors")


@pytest.mark.parametrize("name", [name for name in ottla.__all__ if name != "__version__"])
def test_a_public_name_is_found_and_listed(name: str) -> None:
    assert getattr(ottla, name).__name__ == name
    assert name in dir(ottla)


@pytest.mark.parametrize("home", HOMES_OF_ERRORS)
def test_errors_that_a_user_meets_are_in_one_module(home: str) -> None:
    module = importlib.import_module(home)
    defined = {
        name
        for name, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Exception) and each.__module__ == home
    }
    assert defined <= set(ottla.errors.__all__)


PROGRAM: Final = ast.parse(Path(__file__).with_name("typed_program.py").read_text(encoding="utf-8"))


PUBLIC: Final = (
    "ottla",
    "ottla.admin",
    "ottla.aio",
    "ottla.errors",
    "ottla.interceptors",
    "ottla.opentelemetry",
    "ottla.statistics",
    "ottla.testing",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_program_for_type_checkers_has_every_public_name(name: str) -> None:
    nodes = list(ast.walk(PROGRAM))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    # `admin.Acl`: from the module that it imports by its last name, or by all of its name.
    modules = {name, name.rpartition(".")[2]}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules}
    assert set(importlib.import_module(name).__all__) <= used


@pytest.mark.parametrize("kind", [ottla.Admin, ottla.Consumer, ottla.ConsumerConnector, ottla.Producer])
def test_program_for_type_checkers_has_every_method(kind: type) -> None:
    used = {node.attr for node in ast.walk(PROGRAM) if isinstance(node, ast.Attribute)}
    assert {name for name in dir(kind) if not name.startswith("_")} <= used
