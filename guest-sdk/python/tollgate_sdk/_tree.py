"""JSON Pointers and patterns in a parsed document, by the host's rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tollgate_sdk._pointer import pointer
from tollgate_sdk._review import Container, Node, Value


def tokens(at: str) -> list[str]:
    """Splits a pointer, and raises on a malformed one. Otherwise a typo would read as absent."""
    if at and not at.startswith("/"):
        raise ValueError(f"{at!r} is no JSON Pointer: no leading slash")
    if re.search("~(?![01])", at):
        raise ValueError(f"{at!r} is no JSON Pointer: ~ is followed by neither 0 nor 1")
    return [token.replace("~1", "/").replace("~0", "~") for token in at.split("/")[1:]]


def at_place(document: Any, path: list[str]) -> tuple[Any] | None:
    """Returns the value at a pointer's tokens in a tuple, because JSON null is None."""
    here: tuple[Any] | None = (document,)
    for token in path:
        here = None if here is None else _child(here[0], token)
    return here


def _child(here: Any, token: str) -> tuple[Any] | None:
    if isinstance(here, list):
        is_index = re.fullmatch("0|[1-9][0-9]*", token) is not None and int(token) < len(here)
        return (here[int(token)],) if is_index else None
    return (here[token],) if isinstance(here, dict) and token in here else None


def walk(path: list[str], here: Any, at: str = "") -> Iterator[Node]:
    """Returns every place that matches the tokens of a pattern."""
    if not path:
        yield Node(at, described(here))
        return
    token, *rest = path
    if token != "*":
        found = _child(here, token)
        if found is not None:
            yield from walk(rest, found[0], at + pointer(token))
    elif isinstance(here, list):
        for index, element in enumerate(here):
            yield from walk(rest, element, at + pointer(index))
    elif isinstance(here, dict):
        for name, member in here.items():
            yield from walk(rest, member, at + pointer(name))


def described(value: Any) -> Value:
    """Returns a value as the contract has it: arrays and objects as their length."""
    if isinstance(value, list):
        return Container("array", len(value))
    if isinstance(value, dict):
        return Container("object", len(value))
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return float(value)
    return value  # type: ignore[no-any-return]
