"""The snippets of a page of the documentation, and how they are run: as a reader would, from the top to the end.

* ```` ```python ```` and ```` ```sh ```` fences are run, in one process and one namespace; other fences are only shown.
* `localhost:9092` is the test's broker, `localhost:2181/ottla` its ZooKeeper, `http://localhost:8081` its registry,
  `live:9092` another broker and `offline:9092` the test's; the verbs of `ottla` that a `sh` fence has go to that broker
  unless they name one.
* A fence ```` ```output ```` right after a snippet has lines that it must have printed; one that ends with `...` starts
  a line.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
BROKER: Final = "localhost:9092"
ZOOKEEPER: Final = "localhost:2181/ottla"
# Two clusters: what is copied, and where to.
LIVE: Final = "live:9092"
OFFLINE: Final = "offline:9092"
REGISTRY: Final = "http://localhost:8081"
PYTHON: Final = "python"
SHELL: Final = "sh"
# A page that hangs fails here, before pytest's own limit: a page of streams takes minutes on a machine
# that is busy with other tests.
ENDS_WITHIN_S: Final = 540

_PROGRAM: Final = Path(__file__).with_name("page_program.py")
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT: Final = "output"
_BEGINS: Final = "..."


class Snippet(NamedTuple):
    """Code of a page, and its line there; `output` has lines that it must print."""

    page: Path
    line: int
    language: str
    code: str
    output: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


class Site(NamedTuple):
    """The real address of each address in a page."""

    bootstrap: str
    zookeeper: str = "127.0.0.1:1/none"
    live: str = "127.0.0.1:1"
    registry: str = "http://127.0.0.1:1"


def read_snippets(page: Path) -> list[Snippet]:
    """All snippets that are run, in their order."""
    text = page.read_text(encoding="utf-8")
    found: list[Snippet] = []
    end = 0
    for fence in _FENCE.finditer(text):
        language, code = fence.groups()
        if language in (PYTHON, SHELL):
            found.append(Snippet(page, text.count("\n", 0, fence.start()) + 2, language, code))
            end = fence.end()
        elif language == _OUTPUT:
            assert not text[end : fence.start()].strip(), f"{page.name}: an output without its snippet"
            found[-1] = found[-1]._replace(output=tuple(code.splitlines()))
    return found


def the_snippet(snippets: Iterable[Snippet], language: str, containing: str) -> Snippet:
    """The one snippet of this language that has this in it."""
    (found,) = [each for each in snippets if each.language == language and containing in each.code]
    return found


def run_snippets(
    snippets: Sequence[Snippet], site: Site, directory: Path, *, warnings_are_errors: bool = True
) -> list[str]:
    """Run them in a separate process, in `directory`; return the output of each.

    An error names the page's line.
    """
    steps = [
        {"path": str(each.page), "line": each.line, "language": each.language, "code": _placed(each.code, site)}
        for each in snippets
    ]
    job = directory / "page.json"
    job.write_text(json.dumps({"bootstrap": site.bootstrap, "steps": steps}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-u", "-W", "error" if warnings_are_errors else "default", str(_PROGRAM), str(job)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    if warnings_are_errors:
        # Exceptions that no caller can catch: from a destructor or a thread.
        assert "Exception ignored in" not in done.stderr, told
        assert "Exception in thread" not in done.stderr, told
    outputs = done.stdout.split("\x1e")[1:]
    assert len(outputs) == len(snippets), told
    for snippet, printed in zip(snippets, outputs, strict=True):
        _check_output(snippet, printed)
    return outputs


def _placed(code: str, site: Site) -> str:
    return (
        code.replace(ZOOKEEPER, site.zookeeper)
        .replace(LIVE, site.live)
        .replace(OFFLINE, site.bootstrap)
        .replace(REGISTRY, site.registry)
        .replace(BROKER, site.bootstrap)
        .replace("127.0.0.1:9092", site.bootstrap)
    )


def _check_output(snippet: Snippet, printed: str) -> None:
    lines = [line.rstrip() for line in printed.splitlines()]
    for wanted in snippet.output:
        if wanted.endswith(_BEGINS):
            is_there = any(line.startswith(wanted.removesuffix(_BEGINS)) for line in lines)
        else:
            is_there = wanted.rstrip() in lines
        assert is_there, f"{snippet} should print {wanted!r}, and printed:\n{printed}"
