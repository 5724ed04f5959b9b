"""The homes that every contract test runs against."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.tree_homes import EmbeddedTreeHome, TreeHome
from tests.run_async import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(params=["embedded"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> TreeHome:
    """A home with an empty tree; `request.param` names it."""
    assert request.param == "embedded"
    return EmbeddedTreeHome(tmp_path / "tree.sqlite")
