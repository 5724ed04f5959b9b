"""`./dev docs` builds the site with no warning, and Chromium reads it without a request to any other host."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source_tree import ROOT
from tests.website.chromium import Chromium, find_chromium

CHROMIUM: Final = find_chromium()
needs_chromium: Final = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is on PATH")
# Of elements that a browser loads without a click.
_LOADED: Final = re.compile(r"<(?:script|img|iframe|source)\b[^>]* src=[\"']?([^\"'\s>]+)|<link\b[^>]*>")
_RESULTS: Final = "[...document.querySelectorAll('.md-search-result__item')]"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, ROOT / "dev", "docs", "--site-dir", directory], capture_output=True, text=True, check=False
    )
    if "pip could not install" in done.stderr:
        pytest.skip(f"the packages of the site cannot be had here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return directory


def test_every_public_name_is_in_the_reference_with_its_text(site: Path) -> None:
    for page in (ROOT / "docs" / "api").glob("*.md"):
        html = (site / "api" / f"{page.stem}.html").read_text(encoding="utf-8")
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert f'id="{name}"' in html, f"{page.name}: {name}"
    assert "each message taken so far is stored or has failed" in (site / "api" / "ottla.html").read_text()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 60
    for page in pages:
        for found in _LOADED.finditer(page.read_text(encoding="utf-8")):
            loaded = found[1] or found.group()
            assert "rel=canonical" in loaded or not re.search(r"(?:^|=[\"']?)(?:https?:)?//", loaded), (
                f"{page}: {loaded}"
            )


def test_every_block_of_code_is_shown_as_one(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert 'class="filename">in any order<' in (site / "guide" / "consuming.html").read_text(encoding="utf-8")
    assert [page for page in pages if re.search(r"<(?:p|code)>```", page.read_text(encoding="utf-8"))] == []


def test_links_out_of_the_docs_lead_to_files_of_the_site(site: Path) -> None:
    assert (site / "repository" / "tests" / "interop" / "test_kcat.py.txt").exists()
    assert (site / "repository" / "bench" / "README.html").exists() or (
        site / "repository" / "bench" / "index.html"
    ).exists()


@contextmanager
def _served(directory: Path) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _as_files(directory: Path) -> Iterator[str]:
    yield directory.as_uri()


@needs_chromium
@pytest.mark.parametrize("places", [_as_files, _served], ids=["files", "http"])
def test_search_finds_retention_and_no_request_leaves_the_site(site: Path, tmp_path: Path, places: object) -> None:
    assert CHROMIUM is not None
    assert callable(places)
    with places(site) as place, Chromium(CHROMIUM, tmp_path / "profile") as page:
        page.open(f"{place}/index.html")
        assert page.evaluate("document.querySelector('h1').innerText").startswith("Ottla")
        page.evaluate("document.querySelector('.md-search__input').focus()")
        page.type_text("retention")
        page.wait(f"{_RESULTS}.length > 0")
        found = page.evaluate(f"{_RESULTS}.map(item => item.innerText).join('\\n')")
        assert "retention" in found.lower()
        page.open(f"{place}/api/ottla.html#ottla.Producer")
        assert page.evaluate("document.getElementById('ottla.Producer').getBoundingClientRect().width") > 100
        assert len(page.requested_urls) > 5
        elsewhere = [url for url in page.requested_urls if not url.startswith((place, "data:", "about:", "blob:"))]
        assert elsewhere == []


@needs_chromium
@pytest.mark.parametrize("name", ["index.html", "api/ottla.html"])
def test_page_is_shown(site: Path, tmp_path: Path, name: str) -> None:
    assert CHROMIUM is not None
    with Chromium(CHROMIUM, tmp_path / "profile") as page:
        page.open(f"{site.as_uri()}/{name}")
        picture = page.screenshot()
        (tmp_path / "page.png").write_bytes(picture)
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert width >= 1000
    assert height >= 700
    # A page without text or without its style is a few kilobytes.
    assert len(picture) > 30_000
