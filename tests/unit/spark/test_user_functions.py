"""Functions of a user's file: loaded by name, sent by value, and their errors shown without the frames of Ottla."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import cloudpickle

from ottla.model.errors import ConfigError, details_of
from ottla.runtime.installation import install_command
from ottla.spark.user_functions import load_function


def test_functions_of_two_files_are_sent_by_value(tmp_path: Path) -> None:
    for name, number in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numbers.py").write_text(f"BASE = {number}\ndef number(add): return BASE + add\n")
    functions = [load_function(f"{tmp_path}/{name}/numbers.py:number", "function") for name in ("one", "two")]
    sent = [cloudpickle.loads(cloudpickle.dumps(each)) for each in functions]  # type: ignore[no-untyped-call]
    assert [each(10) for each in sent] == [11, 12]


@pytest.mark.parametrize(
    ("text", "named", "problem", "hint"),
    [
        ("def pages(records): ...", "page", "has no function 'page'", "did you mean pages?"),
        ("pages = 5", "pages", "has no function 'pages'", "it must be a `def`"),
        ("def pages(:", "pages", "cannot be read: invalid syntax", "correct the file"),
        ("open('nowhere')", "pages", "fails when it is run: FileNotFoundError: ", "correct the file"),
        ("import no_such_module", "pages", "fails when it is run: ModuleNotFoundError: No module", "correct the file"),
        (
            "raise ModuleNotFoundError(\"No module named 'deltalake'\", name='deltalake')",
            "pages",
            "fails when it is run: ModuleNotFoundError: No module named 'deltalake'",
            install_command("lake"),
        ),
    ],
)
def test_file_without_the_function_is_refused(
    tmp_path: Path, text: str, named: str, problem: str, hint: str | None
) -> None:
    (tmp_path / "views.py").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_function(f"{tmp_path}/views.py:{named}", "function")
    assert problem in str(raised.value)
    assert raised.value.hint == hint


def test_error_of_a_file_has_its_own_frames_alone(tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text("def limit():\n    return 1 / 0\n\nLIMIT = limit()\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError") as raised:
        load_function(f"{tmp_path}/views.py:pages", "function")
    [trace] = details_of(raised.value)
    assert [line.strip() for line in trace.splitlines() if line.strip().startswith("File")] == [
        f'File "{tmp_path}/views.py", line 4, in <module>',
        f'File "{tmp_path}/views.py", line 2, in limit',
    ]


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*views\.py"):
        load_function(f"{tmp_path}/views.py:pages", "function")


@pytest.mark.parametrize("text", ["views.py", "views.py:", ":pages", "views.py:two words"])
def test_text_that_names_no_function_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no job"):
        load_function(text, "job")
