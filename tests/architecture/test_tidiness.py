"""The code checks itself: calls that bypass the architecture, leftovers, modules without an importer."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Final

import pytest

from ottla.protocol.api import ApiKey
from tests.architecture.source_tree import ROOT, Module, files_below, imports, modules, nodes, sample

# A call, what to use instead, and the module that is that instead.
BANNED_CALLS: Final = {
    "time.time": ("runtime.clock", "ottla.runtime.clock"),
    "time.time_ns": ("runtime.clock", "ottla.runtime.clock"),
    "time.monotonic_ns": ("runtime.clock", "ottla.runtime.clock"),
    "datetime.now": ("runtime.clock", None),
    "asyncio.run": ("runtime.event_loop.run", None),
    "asyncio.Runner": ("runtime.event_loop.run", "ottla.runtime.event_loop"),
    "os.sendfile": ("runtime.disk", "ottla.runtime.posix_disk"),
    "os.replace": ("runtime.disk.replace_file", "ottla.runtime.posix_disk"),
    "os.rename": ("runtime.disk.replace_file", None),
    "random.random": ("a random.Random that is passed in", None),
    "random.randint": ("a random.Random that is passed in", None),
    "random.choice": ("a random.Random that is passed in", None),
    "os.fsync": ("runtime.disk", "ottla.runtime.posix_disk"),
    "os.fdatasync": ("runtime.disk", "ottla.runtime.posix_disk"),
    "print": ("an event, or cli.output.say", None),
    # A direct write may forget to escape names that come from others.
    "click.echo": ("cli.output.say", "ottla.cli.output"),
    "click.secho": ("cli.output.say", None),
    "eval": ("nothing", None),
    "exec": ("nothing", None),
    "pickle.loads": ("nothing: it runs what a peer sends", None),
}
# The log's files go through the disk, so that the crash tests see them; Spark's own output does not.
EXEMPT: Final = {
    "os.fsync": {"spark"},
    "os.fdatasync": {"spark"},
    "os.replace": {"spark"},
    "os.rename": {"spark"},
}
# Modules that programs start by name: no module imports them.
ENTRIES: Final = {"ottla.__main__", "ottla.model.configuration_page"}
# Modules that are imported by the name of their API.
OF_APIS: Final = {
    f"{package}.{api.module_name}" for package in ("ottla.broker.handlers", "ottla.protocol.schemas") for api in ApiKey
}


@cache
def _calls(module: Module) -> list[tuple[str, int]]:
    return [(ast.unparse(node.func), node.lineno) for node in nodes(module) if isinstance(node, ast.Call)]


def _banned_calls(module: Module, banned: str) -> list[str]:
    instead, home = BANNED_CALLS[banned]
    if module.name == home or module.area in EXEMPT.get(banned, set()):
        return []
    where = module.path.relative_to(ROOT)
    return [f"{where}:{line}: {banned}; use {instead}" for name, line in _calls(module) if name == banned]


@pytest.mark.parametrize("banned", BANNED_CALLS)
def test_banned_call_is_used_only_where_it_is_wrapped(banned: str) -> None:
    offences = [offence for module in modules() for offence in _banned_calls(module, banned)]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("banned", BANNED_CALLS)
def test_rule_of_banned_calls_finds_an_offence(banned: str) -> None:
    assert _banned_calls(sample("ottla.storage.sample", f"def f(x):\n    return [{banned}(x)]"), banned)
    assert not _banned_calls(sample("ottla.storage.sample", f"# {banned}(x)\ny = 'call {banned}(x)'"), banned)


_LEFTOVER: Final = re.compile(r"\b(FIXME|TODO|XXX|HACK)\b")


def test_nothing_is_left_to_do() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("src", "tests", "bench", "docs", "examples", "releasing", "website")
        for path in files_below(ROOT / folder, ".py", ".md")
        if path.name != "test_tidiness.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if _LEFTOVER.search(line)
    ]
    assert not offences, "\n".join(offences)


def test_no_code_is_excepted_from_the_format() -> None:
    """A table that the formatter would spread over many lines is a text that is split."""
    excepted = [
        str(path.relative_to(ROOT))
        for folder in ("src", "tests", "bench", "examples", "releasing", "website")
        for path in files_below(ROOT / folder, ".py")
        if re.search(r"# fmt: (?:skip|off)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not excepted


# A row of dashes, with a heading or without one.
_BANNER: Final = re.compile(r"^\s*#(?: ?[-=*]{2,}|.*[-=*]{4,}\s*$)", re.MULTILINE)


def test_no_comment_is_a_banner() -> None:
    """What a heading would divide is a class or a module, or is named by its functions."""
    found = [
        str(path.relative_to(ROOT))
        for folder in ("src", "tests", "bench", "examples", "releasing", "website")
        for path in files_below(ROOT / folder, ".py")
        if _BANNER.search(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_rule_of_banners_finds_one() -> None:
    for banner in ("# --- time ---", "    # -- start ----------", "# ==========", "# time ------"):
        assert _BANNER.search(f"x = 1\n{banner}\n")
    assert not _BANNER.search("# -1: none\n# a -> b, or a - b\nx = 1  # ---\n")


def test_rule_of_leftovers_finds_one() -> None:
    assert _LEFTOVER.search("x = 1  # TODO: later")
    assert not _LEFTOVER.search("TODOS_MAX = 1  # the method is called todo")


@cache
def _strings(module: Module) -> frozenset[str]:
    return frozenset(
        node.value for node in nodes(module) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


_EXTRA_OF_INDEX: Final = re.compile(r"\bottla\[")


def _own_install_hints(module: Module) -> list[str]:
    """Texts besides docstrings that name how an extra is installed."""
    documented = {id(node.value) for node in nodes(module) if isinstance(node, ast.Expr)}
    return [
        f"{module.path.relative_to(ROOT)}:{node.lineno}"
        for node in nodes(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
        if _EXTRA_OF_INDEX.search(node.value)
    ]


def test_hints_take_the_command_that_installs_an_extra_from_the_installation() -> None:
    """`runtime/installation.py`: where the running copy came from, decides what is right."""
    assert not [found for module in modules() for found in _own_install_hints(module)]


def test_rule_of_install_hints_finds_one() -> None:
    assert _own_install_hints(sample("ottla.sample", "def f(x):\n    return f\"pip install 'ottla[{x}]'\""))
    assert not _own_install_hints(sample("ottla.sample", '"""With `pip install \'ottla[lake]\'`."""'))


def _dead(every: tuple[Module, ...]) -> list[str]:
    """Modules that no other imports.  A verb of the command line is named as text, and imported when called."""
    imported = {found.imported for module in every for found in imports(module) if found.imported != module.name}
    texts = frozenset[str]().union(*map(_strings, every))
    return [
        module.name
        for module in every
        if module.path.name != "__init__.py"
        and module.name not in imported | ENTRIES | OF_APIS
        and not any(module.name in text or text == module.name.rpartition(".")[2] for text in texts)
        and module.area != "testing"
    ]


# Cores that only their simulation drives so far; the shell that imports one takes it from this list.
AHEAD_OF_THEIR_SHELL: Final[frozenset[str]] = frozenset()


def test_every_module_is_imported_by_another_or_named_by_one() -> None:
    assert set(_dead(modules())) == AHEAD_OF_THEIR_SHELL


def test_rule_of_dead_modules_finds_one() -> None:
    lonely = sample("ottla.storage.lonely_module", "import ottla.storage.lonely_module")
    user = sample("ottla.storage.other_module", "from ottla.storage.lonely_module import thing")
    assert "ottla.storage.lonely_module" in _dead((*modules(), lonely))
    assert "ottla.storage.lonely_module" not in _dead((*modules(), lonely, user))


# Where tests sleep, and why that is no hope for a state.
SLEEPS: Final = {
    "tests/cluster/chaos_run.py": "pauses between faults",
    "tests/cluster/clock_faults.py": "for how long clocks are off, and are watched, is the fault",
    "tests/cluster/cut_off_leaders.py": "how long a leader is cut off, and clients are watched after it",
    "tests/cluster/disk_faults.py": "how long a disk is full or broken is the fault",
    "tests/cluster/fencing.py": "how long a leader may still try to acknowledge after it was replaced",
    "tests/cluster/injected_calls.py": "a poll with a deadline that ends with the process",
    "tests/cluster/network_faults.py": "how long a network is partitioned is the fault",
    "tests/cluster/scripted_orders.py": "how long a replica may be elected that must not be, and the moment of a kill",
    "tests/cluster/target.py": "how long a process is down is the fault",
    "tests/cluster/faults.py": "how long a process is down or paused is the fault",
    "tests/cluster/test_stuck_syncs.py": "how long a disk is stuck is the fault, and the pace of a producer",
    "tests/connectors/faults.py": "how long a member is stopped is the fault",
    "tests/connectors/feed.py": "the pace of a producer",
    "tests/connectors/homes.py": "how long a process is down is the fault",
    "tests/connectors/member.py": "what a user does with a message",
    "tests/connectors/run.py": "pauses between faults",
    "tests/contract/test_local_tree.py": "a loop that is late at each turn is the fault",
    "tests/contract/tree_backends.py": "a poll with a deadline",
    "tests/eventually.py": "the poll with a deadline that tests use",
    "tests/history/consuming_librdkafka.py": "a member that is slow is the fault",
    "tests/history/mutated_broker.py": "the planted fault is slow",
    "tests/history/clients.py": "a pause of a member beyond its session is the fault",
    "tests/history/waiting_clients.py": "the pace of clients",
    "tests/history/workload.py": "pauses between faults",
    "tests/integration/test_client_reports.py": "how long an answer takes on a slow line",
    "tests/integration/test_demo.py": "the moment of an interruption, and the haste of the second",
    "tests/integration/test_full_disk.py": "the pace of a producer",
    "tests/integration/test_recreated_topics.py": "the pace of a producer, and the moment of a kill",
    "tests/kill/workload.py": "the moment of a kill",
    "tests/mirror/stalls.py": "how long a process stalls is the fault, and pauses between faults",
    "tests/mirror/test_killed_mirror.py": "the moment of a kill",
    "tests/mirror/test_transactional_mirror.py": "the moment of a kill",
    "tests/interop/exactly_once/topics.py": "the pace of the input, which lasts longer than the kills",
    "tests/loads/kills.py": "the moment of a kill",
    "tests/sink/kills.py": "the moment of a kill",
    "tests/peers/answering.py": "a poll with a deadline that ends with the process",
    "tests/peers/cache.py": "a poll with a deadline for another process' lock",
    "tests/peers/peer_process.py": "a poll with a deadline that ends with the process",
    "tests/transactions_history/coordinator_faults.py": "how long a process is paused is the fault",
    "tests/transactions_history/run.py": "pauses between faults",
}


def _sleeps(source: str) -> bool:
    """Whether there is a sleep for a time; `asyncio.sleep(0)` is a turn of the loop."""
    if "sleep(" not in source:
        return False
    calls = {ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}
    return any(call.startswith(("time.sleep(", "asyncio.sleep(")) for call in calls - {"asyncio.sleep(0)"})


def test_tests_wait_for_states_and_do_not_sleep() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in files_below(ROOT / "tests", ".py")
        if _sleeps(path.read_text(encoding="utf-8"))
    }
    assert not found - SLEEPS.keys(), "wait with tests.eventually, or say in SLEEPS why the sleep is the test's point"
    assert not SLEEPS.keys() - found, "these no longer sleep"


def test_rule_of_sleeps_finds_one() -> None:
    assert _sleeps("import time\ndef f():\n    time.sleep(1)")
    assert _sleeps("async def f(x):\n    await asyncio.sleep(x)")
    assert not _sleeps("async def f():\n    await asyncio.sleep(0)  # time.sleep(1)\n    x = 'time.sleep(1)'")
