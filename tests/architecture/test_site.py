"""The site of docs/: every page has its place, and every public name its reference."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.source_tree import ROOT
from website.navigation import pages_of, sections_of

DOCS: Final = ROOT / "docs"
SOURCE: Final = ROOT / "src"
# Names that modules list for their own importers: no user imports them.
NOT_FOR_USERS: Final = {
    "ottla.audit.book": "the names of an earlier release",
    "ottla.cli.pipeline.load_verb": "a verb",
    "ottla.runtime.mutex": "of the broker and the clients",
    "ottla.spark.spark_features": "of the source and the sink",
    "ottla.testing.memory_disk": "of Ottla's own tests",
    "ottla.testing.zookeeper": "of Ottla's own tests",
    "pyspark_ottla": "what Spark imports to find the source",
}
_REFERENCE: Final = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"^Documented elsewhere: (.+)$", re.MULTILINE)
_FENCE: Final = re.compile(r"^ *```(.*)$", re.MULTILINE)
# What a git host and the site show as a block of code.
_INFO: Final = re.compile(r'(?:\w+(?: title="[^"]+")?)?')
_CODE: Final = re.compile(r"`([^`]+)`")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_index_has_every_page_once() -> None:
    listed = pages_of(sections_of(_read(DOCS / "index.md")))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    assert {page: count for page, count in Counter(listed).items() if count > 1} == {}
    assert set(listed) == pages - decisions - {"index.md"}
    assert set(re.findall(r"^\* \[\d+\]\((.+)\)", _read(DOCS / "decisions" / "README.md"), re.MULTILINE)) == {
        page.removeprefix("decisions/") for page in decisions
    }


def public_names() -> Iterator[tuple[str, list[str]]]:
    """Each module with `__all__`, and the names in it."""
    for path in SOURCE.rglob("*.py"):
        text = _read(path)
        if "__all__" not in text:
            continue
        for statement in ast.parse(text).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    parts = path.relative_to(SOURCE).with_suffix("").parts
                    yield ".".join(part for part in parts if part != "__init__"), ast.literal_eval(value)


def test_every_public_name_has_its_reference() -> None:
    pages = [_read(path) for path in (DOCS / "api").glob("*.md")]
    references = {name for page in pages for name in _REFERENCE.findall(page)}
    missing: dict[str, set[str]] = {}
    for module, names in public_names():
        if module in NOT_FOR_USERS:
            continue
        (page,) = [page for page in pages if page.startswith(f"# {module}\n")] or [""]
        elsewhere = {name for line in _ELSEWHERE.findall(page) for name in _CODE.findall(line)}
        lacking = {name for name in names if f"{module}.{name}" not in references} - elsewhere - {"__version__"}
        if lacking:
            missing[module] = lacking
    assert missing == {}


def test_every_reference_is_of_a_public_name() -> None:
    public = {f"{module}.{name}" for module, names in public_names() for name in names}
    # Modules without a list: their pages choose.
    chosen = {"ottla.spark.dead_letters": ("DeadLetters", "attempt"), "ottla.spark.mirror": ("SparkMirror",)}
    public |= {f"{module}.{name}" for module, names in chosen.items() for name in names}
    references = [name for path in (DOCS / "api").glob("*.md") for name in _REFERENCE.findall(_read(path))]
    assert set(references) - public == set()
    assert {name for name, count in Counter(references).items() if count > 1} == set()


def test_modules_that_are_not_for_users_are_there() -> None:
    assert NOT_FOR_USERS.keys() <= dict(public_names()).keys()


def test_each_block_of_code_opens_with_a_language_and_at_most_a_title() -> None:
    wrong = [
        f"{path.relative_to(DOCS)}: {info}"
        for path in sorted(DOCS.rglob("*.md"))
        for info in _FENCE.findall(_read(path))
        if not _INFO.fullmatch(info)
    ]
    assert wrong == []
