"""Unit tests of the broker may be coroutines."""

from tests.run_async import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
