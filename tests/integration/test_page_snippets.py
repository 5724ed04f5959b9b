"""A page's snippets are run in order, and one that does not do what the page says is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.page_snippets import PageProcess, Site, read_snippets, run_snippets

SITE = Site("127.0.0.1:1", "127.0.0.1:2/here")


def page(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(text.replace("~~~", "```"), encoding="utf-8")
    return path


def run(directory: Path, text: str) -> list[str]:
    return run_snippets(read_snippets(page(directory, text)), SITE, directory)


def test_snippets_of_a_page_share_their_names_and_run_in_order(tmp_path: Path) -> None:
    text = "# A page\n\n~~~python\nfound = 1\n~~~\nand\n~~~text\nnot run\n~~~\n"
    text += "~~~sh\necho two\n~~~\n~~~python\nprint(found)\n~~~\n"
    assert run(tmp_path, text) == ["", "two\n", "1\n"]


def test_addresses_of_a_page_are_those_of_the_test(tmp_path: Path) -> None:
    text = "~~~python\nprint('localhost:9092', 'localhost:2181/ottla')\n~~~\n"
    assert run(tmp_path, text) == ["127.0.0.1:1 127.0.0.1:2/here\n"]


def test_output_that_a_page_shows_is_required(tmp_path: Path) -> None:
    text = "~~~python\nprint('one line')\nprint('another')\n~~~\n\n~~~output\none...\nanother\n~~~\n"
    assert run(tmp_path, text) == ["one line\nanother\n"]
    with pytest.raises(AssertionError, match=r"page\.md:2 should print 'other'"):
        run(tmp_path, text.replace("\nanother\n~~~\n", "\nother\n~~~\n"))


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("one two", "~~~output\none...\n~~~\n"),
        ("one\\ntwo\\nthree", "~~~output\none\n...\nthree\n~~~\n"),
        ("one\\ntwo", '~~~output title="in any order"\ntwo\none\n~~~\n'),
        ("one", "~~~text\nanother\n~~~\n"),
    ],
)
def test_whole_output_is_what_a_page_shows(tmp_path: Path, printed: str, shown: str) -> None:
    text = f"~~~python\nprint('{printed}')\n~~~\n\n{shown}"
    run_snippets(read_snippets(page(tmp_path, text)), SITE, tmp_path, output_is_whole=True)


@pytest.mark.parametrize(
    "shown", ["", "~~~output\none\n~~~\n", "~~~output\ntwo\none\n~~~\n", "Text.\n\n~~~text\none\n~~~\n"]
)
def test_line_that_a_page_does_not_show_is_found(tmp_path: Path, shown: str) -> None:
    text = f"~~~python\nprint('one')\nprint('two')\n~~~\n\n{shown}"
    snippets = read_snippets(page(tmp_path, text))
    run_snippets(snippets, SITE, tmp_path)
    with pytest.raises(AssertionError, match=r"page\.md:2 should print what the page shows and nothing else"):
        run_snippets(snippets, SITE, tmp_path, output_is_whole=True)


@pytest.mark.parametrize(
    ("snippet", "message"),
    [
        ("~~~python\nvalue = 1\n\nraise ValueError(value)\n~~~\n", r'page\.md", line 6'),
        ("~~~sh\nfalse | cat\n~~~\n", r"page\.md:4: exit status 1"),
        ("~~~python\nopen('page.json')\n~~~\n", "ResourceWarning"),
    ],
)
def test_failed_snippet_is_reported_with_its_line(tmp_path: Path, snippet: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(tmp_path, "# A page\n\n" + snippet)


def test_output_requires_a_snippet_before_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an output without its snippet"):
        read_snippets(page(tmp_path, "~~~python\npass\n~~~\ntext\n~~~output\nx\n~~~\n"))


def test_pages_of_one_process_share_neither_names_nor_files(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()

    def run_in(process: PageProcess, name: str, text: str) -> list[str]:
        directory = tmp_path / name
        directory.mkdir()
        return run_snippets(
            read_snippets(page(directory, text)), SITE, directory, warnings_are_errors=False, process=process
        )

    ids = "~~~python\nimport os\nprint(os.getpid())\n~~~\n"
    look = "~~~python\nprint('found' in globals(), os.listdir())\n~~~\n"
    with PageProcess(shared) as process:
        leaves = "~~~sh\nmkdir here; echo x > here/file; echo y > file; cat\n~~~\n~~~python\nfound = 1\n~~~\n"
        first, _, _ = run_in(process, "first", ids + leaves)
        with pytest.raises(AssertionError, match=r"page\.md:6: exit status 3"):
            run_in(process, "failing", ids + "~~~sh\nexit 3\n~~~\n")
        again, seen = run_in(process, "last", ids + look)
    assert first == again
    assert seen == "False []\n"


def test_page_that_ends_its_process_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    ends = page(tmp_path, "~~~python\nimport os\nos._exit(0)\n~~~\n")
    with PageProcess(shared) as process:
        with pytest.raises(AssertionError):
            run_snippets(read_snippets(ends), SITE, tmp_path, process=process)
        lives = page(tmp_path, "~~~sh\necho here\n~~~\n")
        assert run_snippets(read_snippets(lives), SITE, tmp_path, process=process) == ["here\n"]
