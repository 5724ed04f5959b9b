from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import click
import pytest

from ottla import __version__
from ottla.cli import program as program_module
from ottla.cli.client_flags import assignments
from ottla.cli.exit_status import CALLED_WRONGLY, FAILED, INTERRUPTED
from ottla.cli.program import LazyGroup, command_of, program, run
from ottla.cli.verbs import VERBS, Verb
from ottla.model.errors import ConfigError

# What `ottla --help` has no business importing.
HEAVY_MODULES = (
    "asyncio",
    "cramjam",
    "crc32c",
    "kazoo",
    "kio",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "sqlite3",
    "uvloop",
)
HELP_CPU_S_MAX = 0.150


def _child(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def failing_verb(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A verb `fail` that raises what the list holds."""
    to_raise: list[BaseException] = []

    @click.command()
    def fail() -> None:
        raise to_raise[0]

    group = LazyGroup("ottla", {})
    monkeypatch.setattr(group, "get_command", lambda _ctx, _name: fail)
    monkeypatch.setattr(group, "resolve_command", lambda _ctx, args: ("fail", fail, args[1:]))
    monkeypatch.setattr(program_module, "program", group)
    return to_raise


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown and verb.about in shown for name, verb in VERBS.items())


@pytest.mark.parametrize("name", VERBS)
def test_verb_has_a_command_and_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(command_of(name, VERBS[name]), click.Command)
    assert run([name, "--help"]) == 0
    assert f"Usage: ottla {name} " in capsys.readouterr().out


def test_verb_is_called_by_its_former_name_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "ledger", "--help"]) == 0
    assert "Show the ranges that readers could not read" in capsys.readouterr().out
    assert run(["audit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "  lost-offsets " in shown
    assert "ledger" not in shown


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, json, contextlib, io\n"
        "from ottla.cli.program import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert run(['--help']) == 0\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    found = _child(code)
    assert found.returncode == 0, found.stderr
    assert not set(json.loads(found.stdout)) & set(HEAVY_MODULES)


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs wait4 to read a child's processor time")
def test_help_costs_less_than_150_ms_of_processor_time() -> None:
    # Processor time, not time passed, and the best of several: other tests may run beside this one.
    def once() -> float:
        child = subprocess.Popen([sys.executable, "-m", "ottla", "--help"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        return usage.ru_utime + usage.ru_stime

    assert min(once() for _ in range(5)) < HELP_CPU_S_MAX


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"ottla {__version__}\n"


def test_unknown_verb_is_called_wrongly_and_the_nearest_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["servve"]) == CALLED_WRONGLY
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("error: There is no verb 'servve'.  Did you mean serve?\nhint: ottla --help shows its usage\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["list", "topics"], "There is no verb 'list'.  Did you mean topic list?"),
        (["topic", "lst"], "There is no verb 'lst'.  Did you mean list?"),
        (["list", "apples"], "There is no verb 'list'."),
    ],
)
def test_wrong_verb_gets_the_right_one(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == CALLED_WRONGLY
    assert capsys.readouterr().err.startswith(f"error: {expected}\n")


def test_unknown_option_is_called_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--bogus"]) == CALLED_WRONGLY
    assert capsys.readouterr().err.endswith("hint: ottla serve --help shows its usage\n")


@pytest.mark.parametrize("arguments", [["serve", "--listen"], ["topic", "create", "t", "--partitions"]])
def test_option_without_its_argument_names_the_help_of_its_verb(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == CALLED_WRONGLY
    verb = " ".join(arguments[: 1 if arguments[0] == "serve" else 2])
    assert capsys.readouterr().err == (
        f"error: Option '{arguments[-1]}' requires an argument.\nhint: ottla {verb} --help shows its usage\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topic", "create", "t", "--partitions", "zero"], "'--partitions': 'zero' is not a whole number."),
        (["produce", "t", "--timestamp", "1.5"], "'--timestamp': '1.5' is not a whole number."),
        (["topic", "create", "t", "--partitions", "0"], "'--partitions': 0 is not in the range x>=1."),
        (["topic", "create", "t", "--config", "a=1", "--config", "a=2"], "--config names a twice, as '1' and as '2'."),
        (["group", "list", "--state", "Stable,Bogus"], "--state is one of Stable, Empty, PreparingRebalance, "),
    ],
)
def test_flag_that_is_wrong_is_told_in_plain_words(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == CALLED_WRONGLY
    assert told in capsys.readouterr().err


def test_setting_that_is_named_twice_alike_is_no_error() -> None:
    assert assignments(["a=1=2", "b=", "a=1=2"], "--config") == {"a": "1=2", "b": ""}


def test_program_without_verb_shows_its_help_and_is_called_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == CALLED_WRONGLY
    out, err = capsys.readouterr()
    assert out == ""
    assert "Verbs:" in err


def test_operational_error_is_a_line_and_a_hint(
    failing_verb: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing_verb.append(ConfigError("the port is taken", hint="choose another"))
    assert run(["fail"]) == FAILED
    assert capsys.readouterr().err == "error: the port is taken\nhint: choose another\n"


def test_error_with_a_peers_words_does_not_reach_the_terminal_raw(
    failing_verb: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing_verb.append(ConfigError("topic \x1b[2J\nhint: send money"))
    assert run(["fail"]) == FAILED
    assert capsys.readouterr().err == "error: topic \\x1b[2J\\nhint: send money\n"


def test_error_of_the_operating_system_names_its_file(
    failing_verb: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing_verb.append(PermissionError(13, "Permission denied", "/data"))
    assert run(["fail"]) == FAILED
    assert capsys.readouterr().err == "error: /data: Permission denied\n"


def test_interrupt_is_quiet(failing_verb: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing_verb.append(KeyboardInterrupt())
    assert run(["fail"]) == INTERRUPTED
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", "")


def test_ctrl_c_while_an_interrupted_program_exits_changes_nothing() -> None:
    found = _child(
        "import atexit, os, signal, ottla.cli, ottla.cli.program\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        f"ottla.cli.program.run = lambda arguments: {INTERRUPTED}\n"
        "ottla.cli.main()"
    )
    assert (found.returncode, found.stderr) == (INTERRUPTED, "")


def test_ctrl_c_while_the_program_is_imported_is_quiet() -> None:
    found = _child(
        "import sys, ottla.cli\n"
        "class Interrupted:\n"
        "    def find_spec(self, *_):\n"
        "        raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "ottla.cli.main()"
    )
    assert (found.returncode, found.stderr) == (INTERRUPTED, "")


def test_ctrl_c_while_a_verb_is_imported_is_not_turned_into_another_error() -> None:
    found = _child(
        "import os, signal\n"
        "from ottla.cli.program import ended_by_ctrl_c\n"
        "with ended_by_ctrl_c():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except BaseException:\n"
        "        raise RuntimeError('of a module that is being imported')"
    )
    assert (found.returncode, found.stderr) == (-signal.SIGINT, "")


def test_our_own_bug_is_not_hidden(failing_verb: list[BaseException]) -> None:
    failing_verb.append(AssertionError("we are wrong"))
    with pytest.raises(AssertionError):
        run(["fail"])


def test_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m ottla --help | true"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert found.stderr == ""


def test_program_refuses_to_run_without_assertions() -> None:
    found = _child("import sys; from ottla.cli.program import run; sys.exit(run(['--help']))", "-O")
    assert found.returncode == FAILED
    assert found.stderr.startswith("error: Ottla needs its assertions\nhint: ")


def test_verbs_module_is_imported_only_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_verbs", {"broken": Verb("ottla.cli.there_is_no_such_module", "Broken.")})
    assert run(["--help"]) == 0
    with pytest.raises(ModuleNotFoundError):
        run(["broken"])


# Sends Ctrl-C to itself while it imports a module, then continues as the installed command does.
_INTERRUPTED_AT = """
import os, signal, sys

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
sys.argv = ["ottla", "topic", "list", "-b", "127.0.0.1:1"]
from ottla.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "name",
    ["ottla.cli", "ottla.cli.exit_status", "ottla.cli.program", "click", "ottla.cli.topic.verb"],
)
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(name: str) -> None:
    done = _child(_INTERRUPTED_AT.format(name=name))
    assert (done.stdout, done.stderr.strip()) == ("", "")  # click ends the line that ^C stands on
    assert done.returncode in (-signal.SIGINT, INTERRUPTED)


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    script = f"exec {sys.executable} -m ottla {command}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", ["--version >&-", "--help >&-", "topic create --help >&-"])
def test_closed_output_is_an_error_without_a_traceback(command: str) -> None:
    done = _shell(command)
    assert done.returncode == FAILED
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_verb_that_writes_nothing_needs_no_open_streams() -> None:
    assert _shell("--version >/dev/null 2>&- <&-").returncode == 0
