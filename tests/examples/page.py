"""The commands of the examples' README, as a reader types them in a clone of this tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.integration.page_snippets import ROOT, Site, Snippet, read_snippets, run_snippets

PAGE = ROOT / "examples" / "README.md"


def snippets_of_the_page() -> list[Snippet]:
    return read_snippets(PAGE)


def program_of(snippet: Snippet) -> str:
    """The heading above it starts with the program's name."""
    above = PAGE.read_text(encoding="utf-8").splitlines()[: snippet.line]
    return next(line.removeprefix("## ").partition(":")[0] for line in reversed(above) if line.startswith("## "))


def run_commands_of(program: str, bootstrap: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against this broker, with this Python, and with files in `directory`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    snippets = [each for each in snippets_of_the_page() if program_of(each) == program]
    assert snippets, f"{PAGE} shows how {program} is run"
    run_snippets(snippets, Site(bootstrap), directory)
