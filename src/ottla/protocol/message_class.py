"""The class of a message: a dataclass that is cheap to import.

A separate module: a process that runs while its package is upgraded imports the schemas of APIs that it had no
request of, and can import a new module with them, where an old one in its memory lacks a new name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform()
def message(declared: type[T]) -> type[T]:
    """`dataclass(slots=True)`, which compiles `__init__` when the first instance is made, and no other method.  A class
    that has a secret declares its own `__repr__`.

    A process imports some hundred of these classes and makes instances of few: to compile five methods of each, as
    `dataclass` does, was a third of the import of the client.
    """
    # Without one `dataclass` makes it from the signature, which takes as long as all else.
    declared.__doc__ = declared.__doc__ or declared.__name__
    made: Any = dataclass(slots=True, init=False, repr=False, eq=False)(declared)
    made.__init__ = _first_init(made)
    if "__repr__" not in vars(declared):
        made.__repr__ = _repr
    made.__eq__ = _equals
    # As of any dataclass that can be changed and compared.
    made.__hash__ = None
    found: type[T] = made
    return found


def _first_init(made: Any) -> Callable[..., None]:
    def init(self: object, *values: object, **named: object) -> None:
        made.__init__ = compiled = _compiled_init(made)
        compiled(self, *values, **named)

    return init


def _compiled_init(made: Any) -> Callable[..., None]:
    """That of a dataclass with the same fields."""
    like = [
        (each.name, object, field(default=each.default, default_factory=each.default_factory)) for each in fields(made)
    ]
    donor: Any = make_dataclass(made.__name__, like, namespace={"__doc__": made.__doc__}, repr=False, eq=False)
    init: Callable[..., None] = donor.__init__
    return init


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equals(self: Any, other: Any) -> object:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = self.__dataclass_fields__
    return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]
