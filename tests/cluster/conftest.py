"""Brokers that share a tree."""

from __future__ import annotations

from tests.run_async import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
