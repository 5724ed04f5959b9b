"""The documentation says what the code does: tables are compared, links and folders must exist."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from ottla.broker.handlers import CALLBACK_HANDLERS, HANDLERS
from ottla.cli.verbs import VERBS
from ottla.model.configuration_page import page
from ottla.protocol.api import ADVERTISED_VERSIONS, API_VERSIONS
from tests.architecture.source_tree import files_below
from website import metrics_page

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md"), ROOT / "examples" / "README.md"])

_API_ROW: Final = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|", re.MULTILINE)
_FOLDER_ROW: Final = re.compile(r"^\| `(src/ottla/[\w/]+)/` \|", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_configuration_page_is_made_from_the_tables_of_settings() -> None:
    assert _read(DOCS / "configuration.md") == page(), (
        "stale: python -m ottla.model.configuration_page > docs/configuration.md"
    )


def test_page_of_metrics_is_made_from_the_calls_that_make_them() -> None:
    assert _read(DOCS / "metrics.md") == metrics_page.page(), "stale: python -m website.metrics_page > docs/metrics.md"


def test_compatibility_table_holds_what_is_advertised_and_nothing_else() -> None:
    rows = _API_ROW.findall(_read(DOCS / "compatibility.md"))
    documented = {int(key): (name, int(lowest), int(highest)) for key, name, lowest, highest in rows}
    advertised = {int(api): (api.message_name, *versions) for api, versions in ADVERTISED_VERSIONS.items()}
    assert documented == advertised


def test_every_offered_api_has_a_module_of_its_messages_and_a_handler_that_is_called() -> None:
    for api in API_VERSIONS:
        assert find_spec(f"ottla.protocol.schemas.{api.module_name}") is not None, api
        handler = import_module(f"ottla.broker.handlers.{api.module_name}")
        called = "answer" if api in CALLBACK_HANDLERS else "handle" if api in HANDLERS else f"{api.message_name}Handler"
        assert callable(getattr(handler, called)), api


def test_every_folder_of_the_source_has_a_line_in_the_architecture() -> None:
    documented = set(_FOLDER_ROW.findall(_read(DOCS / "ARCHITECTURE.md")))
    folders = {
        str(path.parent.relative_to(ROOT))
        for path in (ROOT / "src" / "ottla").rglob("__init__.py")
        if path.parent.name != "ottla"
    }
    assert documented == folders


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(path: Path) -> None:
    targets = [target for target in _LINK.findall(_read(path)) if "://" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("directory", ["src", "tests", "bench", "examples"])
def test_documents_that_the_code_names_exist(directory: str) -> None:
    missing: list[str] = []
    for source in files_below(ROOT / directory, ".py"):
        for named in re.findall(r"docs/[\w./-]*\w", _read(source)):
            # A decision is named by its number, a page without its suffix.
            path = ROOT / named
            if not path.exists() and not [*path.parent.glob(f"{path.name}-*.md"), *path.parent.glob(f"{path.name}.md")]:
                missing.append(f"{source.relative_to(ROOT)}: {named}")
    assert missing == []


def test_every_dependency_has_a_line_that_says_why() -> None:
    listed = _read(DOCS / "dependencies.md")
    declared = re.findall(r'^\s+"([A-Za-z0-9-]+)[><=\[]', _read(ROOT / "pyproject.toml"), re.MULTILINE)
    missing = {name for name in declared if name != "ottla" and not re.search(rf"\b{name}\b", listed)}
    assert declared
    assert missing == set()


def test_readme_names_every_verb() -> None:
    readme = _read(ROOT / "README.md")
    assert [name for name in VERBS if f"ottla {name}" not in readme] == []


def test_events_that_operators_are_told_of_exist() -> None:
    rows = re.findall(r"^\| ((?:`\w+\.\w+`(?:, )?)+) \|", _read(DOCS / "operating.md"), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row)}
    sources = "\n".join(_read(path) for path in (ROOT / "src").rglob("*.py"))
    assert len(documented) > 5
    assert {name for name in documented if f'"{name}"' not in sources} == set()
