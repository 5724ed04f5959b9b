"""The container file and its page name files, verbs and options that exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from ottla.cli.program import program

ROOT: Final = Path(__file__).resolve().parents[2]
CONTAINER_FILE: Final = (ROOT / "Containerfile").read_text()
PAGE: Final = (ROOT / "docs" / "containers.md").read_text()
IMAGE: Final = "ottla"


def command_lines() -> Iterator[tuple[str, ...]]:
    """What follows the entry point: `CMD`, and the arguments after the image's or the program's name on the page."""
    command = re.search(r"^CMD (.*)$", CONTAINER_FILE, re.MULTILINE)
    assert command is not None
    yield tuple(json.loads(command[1]))
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if words[1] in ("run", "exec"):
                # `exec` names the container, then the program.
                last = len(words) - 1 - words[::-1].index(IMAGE)
                if words[last + 1 :]:
                    yield tuple(words[last + 1 :])


@pytest.mark.parametrize("words", [*command_lines()], ids=" ".join)
def test_command_line_of_a_container_is_understood(words: tuple[str, ...]) -> None:
    command: click.Command = program
    arguments = list(words)
    while isinstance(command, click.Group):
        with command.make_context("ottla", arguments) as context:
            name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, name
        command = found
    command.make_context("ottla", arguments).close()


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    sent = (ROOT / ".dockerignore").read_text().split()
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--)(.*)$", CONTAINER_FILE, re.MULTILINE)]
    for name in [name for names in copied for name in names]:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in sent, name


def test_pages_that_the_container_file_names_exist() -> None:
    pages = re.findall(r"docs/\S+\.md", CONTAINER_FILE)
    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []
