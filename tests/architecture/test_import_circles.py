"""No two files import each other, directly or through others; imports for the type checker count too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tests.architecture.source_tree import Module, imports, modules, sample


def import_graph(every: Iterable[Module]) -> dict[str, list[str]]:
    """Each module and the modules of ours that it imports, in order of name."""
    known = {module.name: module for module in every}
    return {
        name: sorted({found.imported for found in imports(module)} & (known.keys() - {name}))
        for name, module in sorted(known.items())
    }


def strongly_connected(graph: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Tarjan's algorithm, with a stack of its own: every set of nodes that reach each other, single nodes included."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    component: list[str] = []
    for root in graph:
        if root in index:
            continue
        index[root] = lowest[root] = len(index)
        component.append(root)
        path = [(root, iter(graph[root]))]
        while path:
            node, successors = path[-1]
            successor = next(successors, None)
            if successor is None:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == index[node]:
                    first = component.index(node)
                    yield component[first:]
                    del component[first:]
            elif successor not in index:
                index[successor] = lowest[successor] = len(index)
                component.append(successor)
                path.append((successor, iter(graph[successor])))
            elif successor in component:
                lowest[node] = min(lowest[node], index[successor])


def circles(every: Iterable[Module]) -> list[list[str]]:
    """For each set of modules that import each other, one shortest round trip: it begins and ends with one module."""
    graph = import_graph(every)
    return sorted(_round_trip(graph, set(group)) for group in strongly_connected(graph) if len(group) > 1)


def _round_trip(graph: Mapping[str, Iterable[str]], group: set[str]) -> list[str]:
    start = min(group)
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:
        for name in graph[path[-1]]:
            if name == start:
                return [*path, start]
            if name in group and name not in seen:
                seen.add(name)
                paths.append([*path, name])
    raise AssertionError(f"{start} does not reach itself")


def test_no_files_import_each_other() -> None:
    offences = [" -> ".join(circle) for circle in circles(modules())]
    assert not offences, "\n".join(offences)


def test_rule_of_circles_names_a_circle_through_the_type_checkers_imports() -> None:
    late = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ottla.storage.log.log"
    every = [
        sample("ottla.storage.log.log", "from ottla.model import errors\nimport ottla.observe.transition_history"),
        sample("ottla.observe.transition_history", "def f() -> None:\n    import ottla.model.limits"),
        sample("ottla.model.limits", late),
        sample("ottla.model.errors", ""),
        sample("ottla.cli.program", "import ottla.storage.log.log"),
    ]
    expected = ["ottla.model.limits", "ottla.storage.log.log", "ottla.observe.transition_history", "ottla.model.limits"]
    assert circles(every) == [expected]


def test_rule_of_circles_lets_two_ways_to_one_module_pass() -> None:
    every = [
        sample("ottla.cli.program", "import ottla.model.errors, ottla.model.limits"),
        sample("ottla.model.limits", "import ottla.model.errors"),
        sample("ottla.model.errors", ""),
    ]
    assert circles(every) == []
