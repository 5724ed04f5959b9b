"""The names that users import."""

from __future__ import annotations

import importlib
import inspect
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
