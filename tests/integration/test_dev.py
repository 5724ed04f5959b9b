"""./dev before anything is installed: old Pythons, an interrupted first run, and what it shows meanwhile."""

from __future__ import annotations

import ast
import fcntl
import io
import os
import subprocess
import sys
import threading
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dev_verbs
from tests.architecture.source_tree import ROOT

DEV = ROOT / "dev"
OLD = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10")
OLD_PYTHONS = [
    str(path)
    for version in OLD
    for folder in (*map(Path, os.get_exec_path()), *(Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    if "shims" not in str(path := folder / f"python{version}") and path.exists()
]
# As an old Python would run it.
AS_OLD = (
    "import runpy, sys; sys.version_info = (3, 9, 18); sys.version = '3.9.18 (old)'; "
    f"sys.argv = [{str(DEV)!r}, 'serve', '--help']; runpy.run_path({str(DEV)!r}, run_name='__main__')"
)


def test_first_file_parses_under_the_oldest_grammar() -> None:
    source = DEV.read_text(encoding="ascii")
    tree = ast.parse(source, feature_version=(3, 4))
    # Today's parser accepts this with any `feature_version`, Python 2.7 does not.
    assert not any(
        isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.Nonlocal) for node in ast.walk(tree)
    )
    assert not any(node.returns or node.args.kwonlyargs for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    assert "print" not in source


@pytest.mark.skipif(not OLD_PYTHONS, reason="no Python older than 3.11 was found (PATH, ~/.pyenv)")
def test_old_pythons_print_the_required_version_and_where_to_get_it(tmp_path: Path) -> None:
    for python in OLD_PYTHONS:
        done = subprocess.run([python, DEV, "demo"], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("dev: Python 3.11 or newer is needed; this is "), f"{python}: {done.stderr}"
        assert "hint: `apt install python3 python3-venv`" in done.stderr


def test_old_python_hands_over_to_a_newer_one_of_the_path(tmp_path: Path) -> None:
    newer = tmp_path / "python3.12"
    newer.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then exec "{sys.executable}" "$@"; fi\necho "$@"\n')
    newer.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", AS_OLD], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{DEV} serve --help\n", "")
    newer.unlink()
    done = subprocess.run([sys.executable, "-c", AS_OLD], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.stderr.startswith("dev: Python 3.11 or newer is needed; this is 3.9.18, and PATH has none\n")


def test_python_without_ensurepip_gets_a_hint_where_to_get_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="apt install python3-venv"):
        dev_verbs.prepare("")


def test_file_in_the_place_of_the_venv_is_reported(tree: Path) -> None:
    dev_verbs.VENV.touch()
    with pytest.raises(SystemExit, match=r"dev: \.venv cannot be made: .*Not a directory"):
        dev_verbs.prepare("")


def interrupted(*_: object, **__: object) -> int:
    raise KeyboardInterrupt


def checked_by_pip(target: str, *, replaces_all: bool) -> dev_verbs.Installed:
    status = dev_verbs.run_silently(dev_verbs.PYTHON, "-m", "pip", "check")
    return dev_verbs.Installed.AS_WANTED if status == 0 else dev_verbs.Installed.NOT


def test_interrupted_first_run_is_started_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(venv.EnvBuilder, "_setup_pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dev_verbs.prepare("")
    assert dev_verbs.PYTHON.exists(), "nothing was left that could disturb the next run"
    with monkeypatch.context() as patch:
        patch.setattr(dev_verbs, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dev_verbs.prepare("")
    (dev_verbs.VENV / "half-installed").touch()
    monkeypatch.setattr(dev_verbs, "install", checked_by_pip)
    dev_verbs.prepare("")
    assert not (dev_verbs.VENV / "half-installed").exists()
    assert capfd.readouterr().err.splitlines()[-2:] == [
        "dev: recreating .venv: it is incomplete",
        "dev: installing . (once)",
    ]
    dev_verbs.prepare("")
    assert capfd.readouterr().err == "", "the next run starts at once"
    source = tree / "src" / "walk.c"
    source.parent.mkdir()
    source.write_text("int walk(void);")
    dev_verbs.prepare("")
    assert capfd.readouterr().err == "dev: installing . (once)\n", "compiled files are compiled again"


def test_all_is_installed_again_after_an_interrupted_later_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(tree)
    (dev_verbs.VENV / "theirs").touch()
    installed: list[tuple[str, bool]] = []

    def install(target: str, *, replaces_all: bool) -> dev_verbs.Installed:
        installed.append((target, replaces_all))
        return dev_verbs.Installed.AS_WANTED

    monkeypatch.setattr(dev_verbs, "install", install)
    dev_verbs.prepare("")
    with monkeypatch.context() as patch:
        patch.setattr(dev_verbs, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dev_verbs.prepare("dev")
    dev_verbs.prepare("")
    dev_verbs.prepare("")
    dev_verbs.prepare("dev")
    assert installed == [(".", False), (".", True), (".[dev]", False)]
    assert (dev_verbs.VENV / "theirs").exists()


def test_what_seems_to_be_installed_is_replaced_by_each_installer(tree: Path) -> None:
    _pip(tree)
    log = tree / "runs"
    dev_verbs.PYTHON.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$2" != uv ]\n')
    assert dev_verbs.install(".[dev]", replaces_all=True) is not dev_verbs.Installed.NOT
    installs = [line.split() for line in log.read_text().splitlines() if " install " in line]
    assert {words[1] for words in installs} == {"pip", "uv"}
    assert all(("--reinstall" if words[1] == "uv" else "--force-reinstall") in words for words in installs)


def test_second_run_waits_for_the_first_instead_of_recreating_its_venv(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told, installs, waits = [], [], threading.Event(), threading.Event()

    def make_venv() -> None:
        made.append(dev_verbs.BEGUN.exists())
        dev_verbs.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        dev_verbs.PYTHON.touch()
        dev_verbs.BEGUN.touch()

    def install(target: str, *, replaces_all: bool) -> dev_verbs.Installed:
        if installs.is_set():
            waits.set()  # the second install: without a lock neither process prints that it waits
        installs.set()
        assert waits.wait(60)
        return dev_verbs.Installed.AS_WANTED

    def say(text: str) -> None:
        told.append(text)
        if "another" in text:
            waits.set()

    for name, replaced in (("make_venv", make_venv), ("install", install), ("say", say)):
        monkeypatch.setattr(dev_verbs, name, replaced)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(dev_verbs.prepare, "")
        assert installs.wait(60)
        second = pool.submit(dev_verbs.prepare, "")
        second.result(60)
        first.result(60)
    assert (made, told) == ([False], ["installing . (once)", "another ./dev is making .venv: waiting until it has"])


def test_file_of_the_lock_is_open_for_writing_as_nfs_requires(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda file, _: modes.append(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE))
    (tree / "pyproject.toml").write_text("[project]\n")
    with dev_verbs.alone():
        assert modes == [os.O_RDWR]
    assert (tree / "pyproject.toml").read_text() == "[project]\n"


def test_venv_that_the_user_made_without_pip_gets_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(dev_verbs.VENV, with_pip=False)
    (dev_verbs.VENV / "theirs").touch()
    monkeypatch.setattr(dev_verbs, "install", checked_by_pip)
    dev_verbs.prepare("")
    assert (dev_verbs.VENV / "theirs").exists()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own copy of the project's root."""
    for name in ("pyproject.toml", "hatch_build.py", "requirements.lock", "requirements-docs.lock"):
        (tmp_path / name).touch()
    for name, path in (
        ("ROOT", ""),
        ("LOCK", "requirements.lock"),
        ("DOCS_LOCK", "requirements-docs.lock"),
        ("DOCS_VENV", ".venv-docs"),
        ("VENV", ".venv"),
        ("PYTHON", ".venv/bin/python"),
        ("BEGUN", ".venv/.dev-begun"),
        ("INSTALLING", ".venv/.dev-installing"),
    ):
        monkeypatch.setattr(dev_verbs, name, tmp_path / path)
    return tmp_path


def _pip(tree: Path, *lines: str, status: int = 0) -> None:
    dev_verbs.PYTHON.parent.mkdir(parents=True)
    dev_verbs.PYTHON.write_text("\n".join(["#!/bin/sh", *(f"echo '{line}'" for line in lines), f"exit {status}"]))
    dev_verbs.PYTHON.chmod(0o755)


@pytest.mark.parametrize(
    ("answers", "runs"),
    [
        pytest.param("", ["pip: uv", "uv: locked"], id="uv can be had"),
        pytest.param('case "$*" in *" uv>="*) exit 1 ;; esac', ["pip: uv", "pip: all"], id="uv cannot be had"),
        pytest.param(
            'case "$*" in *" --constraint="*) exit 1 ;; esac',
            ["pip: uv", "uv: locked", "uv: all"],
            id="the lock cannot be installed",
        ),
        pytest.param('[ "$2" != uv ] || exit 1', ["pip: uv", "uv: locked", "uv: all", "pip: all"], id="uv fails"),
        pytest.param('[ "$3" != config ] || echo "global.index-url=x"', ["pip: all"], id="pip has another index"),
    ],
)
def test_uv_installs_what_is_locked_and_all_that_is_allowed_or_pip_does_where_it_cannot(
    tree: Path, answers: str, runs: list[str]
) -> None:
    _pip(tree)
    log = tree / "runs"
    dev_verbs.PYTHON.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{answers}\n')
    assert dev_verbs.install(".[dev]") is not dev_verbs.Installed.NOT
    installs = [line.split() for line in log.read_text().splitlines() if " install " in line]
    locked = f"--constraint={dev_verbs.LOCK}"
    kinds = ["locked" if locked in words else "all" if ".[dev]" in words else "uv" for words in installs]
    assert [f"{words[1]}: {kind}" for words, kind in zip(installs, kinds, strict=True)] == runs


def test_index_of_pip_is_found_where_pip_is_quiet(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(tree)
    dev_verbs.PYTHON.write_text('#!/bin/sh\n[ -n "$PIP_QUIET" ] || echo "global.index-url=x"\n')
    monkeypatch.setenv("PIP_QUIET", "1")
    assert dev_verbs.has_own_index()


REFUSED = "error: No solution found when resolving dependencies"
NOT_BUILT = "error: Failed to build `pyspark==4.3.0`"
NO_NETWORK = "  cause: Failed to fetch: https://index/simple/hatchling/"


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize(
    ("printed", "is_final"),
    [
        ((REFUSED,), True),
        ((NOT_BUILT,), True),
        ((NO_NETWORK,), False),
        ((NOT_BUILT, NO_NETWORK), False),
        ((), False),
    ],
)
def test_lock_is_tried_again_by_the_next_run_unless_its_packages_failed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, printed: tuple[str, ...], is_final: bool, is_terminal: bool
) -> None:
    if is_terminal:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", _Terminal())
    _pip(tree)
    log = tree / "runs"
    fails = "".join(f"echo '{line}' >&2; " for line in printed)
    dev_verbs.PYTHON.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *" --constraint="*) {fails} exit 1 ;; esac\n'
    )
    dev_verbs.prepare("dev")
    dev_verbs.prepare("dev")
    assert log.read_text().count("--constraint=") == (1 if is_final else 2)
    assert not dev_verbs.INSTALLING.exists()


def test_package_that_is_not_the_locked_one_is_not_replaced_by_another_version(
    tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _pip(tree)
    log = tree / "runs"
    mismatch = 'case "$*" in *" --constraint="*) echo "cause: Hash mismatch for click" >&2; exit 1 ;; esac'
    dev_verbs.PYTHON.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{mismatch}\n')
    assert dev_verbs.install(".[dev]") is dev_verbs.Installed.NOT
    locked = f"--constraint={dev_verbs.LOCK}"
    assert all(locked in line for line in log.read_text().splitlines() if ".[dev]" in line)
    assert capfd.readouterr().err.endswith("dev: a package is not the one that requirements.lock names\n")


def test_terminal_shows_the_progress_of_uv(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    _pip(tree, "Resolved 126 packages in 2s", "Downloading pyarrow (52.4MiB)", "   Building pyspark==4.3.0")
    assert dev_verbs.install(".") is dev_verbs.Installed.AS_WANTED
    drawn = terminal.getvalue().split("\r")
    assert [line.split(", ", 1)[1] for line in drawn if ", " in line] == [
        "looking for packages\x1b[K",
        "downloading pyarrow (52.4MiB)\x1b[K",
        "building\x1b[K",
    ]


def test_terminal_shows_the_progress_of_pip(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    _pip(
        tree,
        "Collecting click<9,>=8.2 (from ottla)",
        "  Downloading https://x/click-8.whl (3 MB)",
        "Installing collected packages: a",
    )
    assert dev_verbs.install(".") is dev_verbs.Installed.AS_WANTED
    drawn = terminal.getvalue().split("\r")
    assert [line.split(", ", 1)[1] for line in drawn if ", " in line] == [
        "package 1: click<9,>=8.2\x1b[K",
        "package 1: downloading click-8.whl (3 MB)\x1b[K",
        "installing what was collected (1)\x1b[K",
    ]
    assert max(len(line.removesuffix("\x1b[K")) for line in drawn) < 60


def test_output_of_pip_is_shown_when_it_fails(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    _pip(tree, "ERROR: no such package", status=1)
    dev_verbs.PYTHON.write_text(dev_verbs.PYTHON.read_text().replace("exit 1", "printf 'and no line end'; exit 1"))
    assert dev_verbs.install(".") is dev_verbs.Installed.NOT
    assert terminal.getvalue().endswith("ERROR: no such package\nand no line end\n")


def test_nothing_is_drawn_where_there_is_no_terminal(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _pip(tree, '"$@"')
    assert dev_verbs.install(".") is dev_verbs.Installed.AS_WANTED
    assert capfd.readouterr().err == ""


def test_wrong_types_end_the_tests_and_are_shown(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _pip(tree, "tests start")
    dev_verbs.PYTHON.write_text("#!/bin/sh\nexec sleep 600\n")
    report = tree / "types"
    report.write_text("src/x.py:1: error: wrong\n")
    with subprocess.Popen(["false"]) as types:
        assert dev_verbs.run_while_types_are_right(types, report, "not suite") != 0
    assert capfd.readouterr().out.endswith("src/x.py:1: error: wrong\n")


@pytest.mark.parametrize("status", [0, 3])
def test_tests_have_the_status_and_the_last_line_when_the_types_are_right(
    tree: Path, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    _pip(tree, "3 passed", status=status)
    report = tree / "types"
    report.write_text("Success\n")
    with subprocess.Popen(["true"]) as types:
        assert dev_verbs.run_while_types_are_right(types, report, "not suite") == status
    assert capfd.readouterr().out == "3 passed\n"


def test_suites_are_what_test_leaves_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as ended:
        monkeypatch.setattr(dev_verbs, "start_beside", lambda *arguments, output: ended)
        monkeypatch.setattr(dev_verbs, "lint_style", lambda: 0)
        _pip(tree, "x")
        written = tree / "commands"
        dev_verbs.PYTHON.write_text(f'#!/bin/sh\necho "$@" >> {written}\n')
        assert dev_verbs.test([]) == 0
        assert dev_verbs.suites(["-k", "librdkafka"]) == 0
    commands = written.read_text().splitlines()
    assert "-m not suite" in commands[0]
    assert commands[1].endswith("-m suite or hypothesis or exhaustive --durations=30 -k librdkafka")


def _docs_venv(tree: Path, monkeypatch: pytest.MonkeyPatch, *, locked_install: str = "exit 0") -> None:
    """Its Python prints its arguments; `locked_install` is what pip then does with the lock."""

    def create(self: venv.EnvBuilder, folder: Path) -> None:
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f'#!/bin/sh\necho "$@"\ncase "$*" in *--require-hashes*) {locked_install} ;; esac\n')
        python.chmod(0o755)

    monkeypatch.setattr(venv.EnvBuilder, "create", create)
    for variable in ("PYTHONPATH", "NO_MKDOCS_2_WARNING"):
        monkeypatch.setenv(variable, "")
    (tree / "pyproject.toml").write_text('[dependency-groups]\ndocs = [\n    "mkdocs>=1",\n    "a-theme",\n]\n')


DOCS_PIP = "-m pip install --disable-pip-version-check --no-compile --progress-bar=off"


def test_site_is_built_in_an_environment_apart_that_is_made_once(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _docs_venv(tree, monkeypatch)
    configuration = tree / "website" / "mkdocs.yml"
    assert dev_verbs.main(["docs", "--site-dir", "/elsewhere"]) == 0
    assert dev_verbs.main(["docs", "--serve"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"{DOCS_PIP} --require-hashes --requirement={tree / 'requirements-docs.lock'} --quiet",
        f"-m mkdocs build --strict --quiet --site-dir /elsewhere --config-file {configuration}",
        f"-m mkdocs serve --config-file {configuration}",
    ]
    assert not dev_verbs.VENV.exists(), "the tests' environment is not needed"
    (tree / ".venv-docs" / ".installed").unlink()
    assert dev_verbs.main(["docs"]) == 0
    assert "pip install" in capfd.readouterr().out, "an interrupted installation is started again"
    (tree / "requirements-docs.lock").write_text("mkdocs==1.6.1")
    assert dev_verbs.main(["docs"]) == 0
    assert "pip install" in capfd.readouterr().out, "another lock is installed"


@pytest.mark.parametrize(
    ("failure", "word", "installs_again"),
    [
        ("ERROR: No matching distribution found for mkdocs==1.6.1", "here", False),
        ("WARNING: Retrying; ERROR: No matching distribution found for mkdocs==1.6.1", "now", True),
    ],
)
def test_site_is_built_by_other_versions_where_the_locked_ones_cannot_be_had(
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failure: str,
    word: str,
    installs_again: bool,
) -> None:
    _docs_venv(tree, monkeypatch, locked_install=f'echo "{failure}" >&2; exit 1')
    assert dev_verbs.main(["docs"]) == 0
    printed = capfd.readouterr()
    assert f"requirements-docs.lock cannot be installed {word}; pip takes the newest versions" in printed.err
    assert f"{DOCS_PIP} mkdocs>=1 a-theme --quiet" in printed.out.splitlines()
    assert dev_verbs.main(["docs"]) == 0
    assert ("pip install" in capfd.readouterr().out) is installs_again


def test_site_is_not_built_by_a_package_with_another_hash(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _docs_venv(tree, monkeypatch, locked_install='echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" >&2; exit 1')
    with pytest.raises(SystemExit, match=r"a package is not the one that requirements-docs\.lock names"):
        dev_verbs.main(["docs"])
    assert capfd.readouterr().out.splitlines() == [
        f"{DOCS_PIP} --require-hashes --requirement={tree / 'requirements-docs.lock'} --quiet"
    ]
