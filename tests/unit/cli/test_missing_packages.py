"""The error for an installation without the extra that a verb needs."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from ottla.cli.exit_status import FAILED
from ottla.cli.program import run
from ottla.runtime import installed
from ottla.runtime.installation import install_command


@pytest.mark.parametrize(
    ("arguments", "lacking", "extra"),
    [
        (["load", "clicks", "--target", "lake"], "pyspark", "lake"),
        (["load", "clicks", "--target", "lake"], "deltalake", "lake"),
        (["load", "clicks", "--target", "lake", "--table", "a.b"], "pyiceberg", "iceberg"),
        (["load", "clicks", "--table", "prod.lake.clicks"], "pyiceberg", "iceberg"),
        (["load", "clicks", "--table", "main.lake.clicks", "--catalog", "type=unity"], "deltalake", "lake"),
        (["load", "compact", "--target", "lake"], "deltalake", "lake"),
        (["load", "vacuum", "--target", "lake"], "deltalake", "lake"),
        (["audit", "run"], "pyspark", "spark"),
        (["audit", "run", "--table", "lake"], "deltalake", "lake"),
        (["stream", "run", "views.py:top", "--checkpoint", "c"], "pyspark", "spark"),
    ],
)
def test_verb_without_its_packages_says_what_to_install(
    arguments: list[str],
    lacking: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def find_spec(module: str) -> ModuleSpec | None:
        return None if module == lacking else ModuleSpec(module, None)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "find_spec", find_spec)
    assert run(arguments) == FAILED
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert error.endswith(f" needs the module {lacking}")
    assert hint == f"hint: {install_command(extra)}"


@pytest.mark.parametrize(
    ("module", "extra", "expected"),
    [("pyspark", None, "spark"), ("pyarrow.compute", "lake", "lake"), ("opentelemetry.trace", None, "opentelemetry")],
)
def test_import_without_its_packages_says_what_to_install(module: str, extra: str | None, expected: str) -> None:
    with (
        pytest.raises(ModuleNotFoundError) as caught,
        installed.naming_what_to_install(extra),
    ):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert str(caught.value) == f"No module named {module!r}: {install_command(expected)}"
    assert caught.value.name == module


def test_import_of_what_no_extra_brings_fails_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'views'$"), installed.naming_what_to_install():
        raise ModuleNotFoundError("No module named 'views'", name="views")
