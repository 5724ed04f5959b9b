"""A setting that stands in the tables as honoured is read by the code."""

from __future__ import annotations

import ast
from dataclasses import fields
from types import ModuleType

import pytest

from ottla.model import broker_settings, group_settings, security_settings, topic_settings
from ottla.model.setting import Setting
from ottla.model.topic_settings import SYNONYMS
from ottla.storage.log_config import LogConfig
from tests.architecture.source_tree import modules, nodes

_TABLES = {"ottla.model.broker_settings", "ottla.model.security_settings", "ottla.model.topic_settings"}


def _names_read() -> set[str]:
    """Names and attributes in all modules but the tables themselves."""
    found: set[str] = set()
    for module in modules():
        if module.name in _TABLES:
            continue
        for node in nodes(module):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
    return found


@pytest.mark.parametrize(
    "table", [broker_settings, group_settings, security_settings, topic_settings], ids=lambda table: table.__name__
)
def test_every_honoured_setting_is_read(table: ModuleType) -> None:
    stands_in = {synonym.setting.name for synonyms in SYNONYMS.values() for synonym in synonyms}
    read = _names_read()
    unread = [
        name
        for name, setting in vars(table).items()
        if isinstance(setting, Setting)
        and setting.honoured
        # One choice is honoured by refusing every other.
        and len(setting.choices) != 1
        and name not in read
        and not (table is broker_settings and setting.name in stands_in)
    ]
    assert unread == []


def test_every_setting_of_a_log_is_read() -> None:
    # `message.timestamp.type` and the like reach the log as fields of its configuration.
    read = _names_read()
    assert [field.name for field in fields(LogConfig) if field.name not in read] == []
