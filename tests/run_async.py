"""Lets a test be an `async def`: a conftest imports the hook, and the test runs on the product's own event loop."""

from __future__ import annotations

import inspect

import pytest

from ottla.runtime.event_loop import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    run(pyfuncitem.obj(**arguments))
    return True
