"""What goes to the host is of the type that the contract has: the toolchain ends the call without a word where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Checked = TypeVar("Checked")

# Half a surrogate pair, as in "\ud83d": no encoding has a form for it.
_HALF = re.compile("[\ud800-\udfff]")


def describe(value: Any) -> str:
    """What a value is, for a message: never its content, which may be secret."""
    return "None" if value is None else f"a {type(value).__name__}"


def text(value: Any, what: str) -> str:
    """Text for people. Half a surrogate pair becomes U+FFFD."""
    return mended(_string(value, what))


def mended(value: str) -> str:
    """With U+FFFD for each half of a surrogate pair."""
    return value if value.isascii() else _HALF.sub("\ufffd", value)


def exact(value: Any, what: str) -> str:
    """Text that has to arrive as it is: a pointer, a value."""
    if not _string(value, what).isascii() and _HALF.search(value):
        raise TypeError(f"{what} has half a surrogate pair, which is no text")
    return value  # type: ignore[no-any-return]


def optional(value: Any, what: str, of: Callable[[Any, str], Checked]) -> Checked | None:
    """What may be left out."""
    return None if value is None else of(value, what)


def sequence(value: Any, what: str, of: Callable[[Any, str], Checked]) -> list[Checked]:
    """A list of what ``of`` checks, each under its index. A string is none, though Python can take it for one."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{what} is not a list but {describe(value)}")
    return [of(element, f"{what}[{index}]") for index, element in enumerate(value)]


def texts(value: Any, what: str) -> list[str]:
    """A list of strings."""
    return sequence(value, what, exact)


def status(value: Any, what: str) -> int:
    """A whole number that the contract has room for."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0xFFFF:
        return value
    found = value if isinstance(value, int | float) else describe(value)
    raise TypeError(f"{what} is {found}; it has to be a whole number from 400 to 499")


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is not a string but {describe(value)}")
    return value
