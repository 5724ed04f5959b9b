"""The snippets of a page of the documentation, and how they are run: as a reader would, from the top to the end.

* ```` ```python ```` and ```` ```sh ```` fences are run, in one process and one namespace; other fences are only shown.
* `localhost:9092` is the test's broker, `localhost:2181/ottla` its ZooKeeper, `http://localhost:8081` its registry,
  `live:9092` another broker and `offline:9092` the test's; the verbs of `ottla` that a `sh` fence has go to that broker
  unless they name one.
* A fence ```` ```output ```` right after a snippet has lines that it must have printed; one that ends with `...` starts
  a line.  Where the whole output is compared, it has all lines in their order, or in any order after
  ```` ```output title="in any order" ````, and `...` alone is any number of lines; a snippet without such a fence
  prints nothing, unless a ```` ```text ```` fence right after it has an example.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
BROKER: Final = "localhost:9092"
ZOOKEEPER: Final = "localhost:2181/ottla"
# Two clusters: what is copied, and where to.
LIVE: Final = "live:9092"
OFFLINE: Final = "offline:9092"
# Where no broker is, for a page with one cluster.
NO_LIVE: Final = "127.0.0.1:1"
REGISTRY: Final = "http://localhost:8081"
PYTHON: Final = "python"
SHELL: Final = "sh"
# A page that hangs fails here, before pytest's own limit: a page of streams takes minutes on a machine
# that is busy with other tests.
ENDS_WITHIN_S: Final = 540

_PROGRAM: Final = Path(__file__).with_name("page_program.py")
# The site shows a title above the block; git hosts show the block alone.
UNORDERED: Final = ' title="in any order"'
_FENCE: Final = re.compile(rf"^```(\w*)({re.escape(UNORDERED)})?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT: Final = "output"
_EXAMPLE: Final = "text"
_BEGINS: Final = "..."


class Snippet(NamedTuple):
    """Code of a page, and its line there; `output` has lines that it must print.

    `has_example`: the page shows an output that differs each time.  `is_unordered`: the lines come in any order, as
    those of several partitions do.
    """

    page: Path
    line: int
    language: str
    code: str
    output: tuple[str, ...] = ()
    has_example: bool = False
    is_unordered: bool = False

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


class Site(NamedTuple):
    """The real address of each address in a page."""

    bootstrap: str
    zookeeper: str = "127.0.0.1:1/none"
    live: str = NO_LIVE
    registry: str = "http://127.0.0.1:1"


def read_snippets(page: Path) -> list[Snippet]:
    """All snippets that are run, in their order."""
    text = page.read_text(encoding="utf-8")
    found: list[Snippet] = []
    end = 0
    for fence in _FENCE.finditer(text):
        language, unordered, code = fence.groups()
        if language in (PYTHON, SHELL):
            found.append(Snippet(page, text.count("\n", 0, fence.start()) + 2, language, code))
            end = fence.end()
        elif language == _OUTPUT:
            assert not text[end : fence.start()].strip(), f"{page.name}: an output without its snippet"
            found[-1] = found[-1]._replace(output=tuple(code.splitlines()), is_unordered=unordered is not None)
        elif language == _EXAMPLE and found and not text[end : fence.start()].strip():
            found[-1] = found[-1]._replace(has_example=True)
    return found


def the_snippet(snippets: Iterable[Snippet], language: str, containing: str) -> Snippet:
    """The one snippet of this language that has this in it."""
    (found,) = [each for each in snippets if each.language == language and containing in each.code]
    return found


def run_snippets(
    snippets: Sequence[Snippet],
    site: Site,
    directory: Path,
    *,
    warnings_are_errors: bool = True,
    output_is_whole: bool = False,
    process: PageProcess | None = None,
) -> list[str]:
    """Run them in a separate process, in `directory`; return the output of each.

    With `output_is_whole` a snippet prints what the page shows and nothing else.  With a `process` they run there and
    in its directory, and `directory` has the files of the run.  An error names the page's line.
    """
    steps = [
        {"path": str(each.page), "line": each.line, "language": each.language, "code": _placed(each.code, site)}
        for each in snippets
    ]
    job = {"bootstrap": site.bootstrap, "steps": steps}
    done = _run_alone(job, directory, warnings_are_errors) if process is None else process.run(job, directory)
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
        if output_is_whole:
            _check_whole_output(snippet, printed)
    return outputs


def _run_alone(
    job: Mapping[str, object], directory: Path, warnings_are_errors: bool
) -> subprocess.CompletedProcess[str]:
    file = directory / "page.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-u", "-W", "error" if warnings_are_errors else "default", str(_PROGRAM), str(file)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )


class PageProcess:
    """One process for several pages, one after the other: those that start Spark share its JVM.

    Each page has its own namespace and its own session.  The directory is the same for all, since the JVM does not
    change its directory, and it is empty when a page starts.  Warnings are allowed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> PageProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            raise

    def run(self, job: Mapping[str, object], directory: Path) -> subprocess.CompletedProcess[str]:
        """The output and the errors of the page are in files of `directory`, too."""
        assert directory != self._directory, "a page's end empties the directory of the process"
        output, errors = directory / "output", directory / "errors"
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**job, "output": str(output), "errors": str(errors)}) + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(ENDS_WITHIN_S):
                # With its JVM.
                os.killpg(process.pid, signal.SIGKILL)
        answer = process.stdout.readline()
        if not answer:
            # It was killed, or has ended.
            process.communicate()
        status = int(answer) if answer else 1
        texts = [path.read_text(encoding="utf-8") if path.exists() else "" for path in (output, errors)]
        return subprocess.CompletedProcess(str(_PROGRAM), status, *texts)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-W", "default", str(_PROGRAM)],
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._process


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


def _check_whole_output(snippet: Snippet, printed: str) -> None:
    if snippet.has_example:
        return
    shown = sorted if snippet.is_unordered else list
    # Spark ends a table with an empty line, which ends no page.
    lines = "".join(f"{line.rstrip()}\n" for line in shown(printed.rstrip("\n").splitlines()))
    wanted = "".join(map(_line_pattern, shown(snippet.output)))
    assert re.fullmatch(wanted, lines), (
        f"{snippet} should print what the page shows and nothing else; it printed:\n{printed}"
    )


def _line_pattern(line: str) -> str:
    if line == _BEGINS:
        return "(?:.*\n)*"
    if line.endswith(_BEGINS):
        return f"{re.escape(line.removesuffix(_BEGINS))}.*\n"
    return f"{re.escape(line.rstrip())}\n"
