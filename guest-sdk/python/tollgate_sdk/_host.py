"""What reviews are read through: Tollgate in a plugin, a review in memory in a test."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollgate_sdk._review import Node, Part, Request, Value


class Host(Protocol):
    """The contract's imports, in Python's types."""

    def request(self) -> Request: ...

    def get(self, part: Part, at: str) -> tuple[Value] | None:
        """The value in a tuple, because JSON null is None."""
        ...

    def get_json(self, part: Part, at: str) -> str | None: ...

    def keys(self, part: Part, at: str) -> list[str] | None: ...

    def select(self, part: Part, pattern: str) -> list[Node]: ...

    def warn(self, message: str) -> None: ...

    def annotate(self, key: str, value: str) -> None: ...

    def log(self, level: str, message: str) -> None: ...

    def now(self) -> datetime: ...


_current: Host | None = None


def use(host: Host | None) -> Host | None:
    """Sets what reviews are read through, and gives back what it was before."""
    global _current
    before, _current = _current, host
    return before


def current() -> Host:
    """The host of this moment."""
    if _current is None:
        raise RuntimeError("there is no review outside of validate and mutate")
    return _current
