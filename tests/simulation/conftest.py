"""Which seeds a run of the tests has tried, in its summary: also when nothing failed."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports(""):
        for name, value in getattr(report, "user_properties", ()):
            if name == "simulation":
                terminalreporter.write_line(f"simulation: {value}")
