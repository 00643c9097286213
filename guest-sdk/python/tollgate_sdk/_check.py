"""Checks the types of values for the host. Without these checks, the toolchain would end the call without a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Checked = TypeVar("Checked")

# Half a surrogate pair, as in "\ud83d": no encoding can represent it.
_HALF = re.compile("[\ud800-\udfff]")


def describe(value: Any) -> str:
    """Describes a value for a message. Never uses its content, which may be secret."""
    return "None" if value is None else f"a {type(value).__name__}"


def text(value: Any, what: str) -> str:
    """Checks text for people. Half a surrogate pair becomes U+FFFD."""
    return mended(_string(value, what))


def mended(value: str) -> str:
    """Replaces each half of a surrogate pair with U+FFFD."""
    return value if value.isascii() else _HALF.sub("\ufffd", value)


def exact(value: Any, what: str) -> str:
    """Checks text that must not change: a pointer, a value."""
    if not _string(value, what).isascii() and _HALF.search(value):
        raise TypeError(f"{what} has half a surrogate pair, which is no text")
    return value  # type: ignore[no-any-return]


def optional(value: Any, what: str, of: Callable[[Any, str], Checked]) -> Checked | None:
    """Checks a value that may be absent."""
    return None if value is None else of(value, what)


def sequence(value: Any, what: str, of: Callable[[Any, str], Checked]) -> list[Checked]:
    """Checks a list with ``of``, each element under its index.

    A string is not a list, although Python can treat it as one.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{what} is not a list but {describe(value)}")
    return [of(element, f"{what}[{index}]") for index, element in enumerate(value)]


def texts(value: Any, what: str) -> list[str]:
    """Checks a list of strings."""
    return sequence(value, what, exact)


def status(value: Any, what: str) -> int:
    """Checks a whole number that fits into the contract's type."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0xFFFF:
        return value
    found = value if isinstance(value, int | float) else describe(value)
    raise TypeError(f"{what} is {found}; it has to be a whole number from 400 to 499")


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is not a string but {describe(value)}")
    return value
