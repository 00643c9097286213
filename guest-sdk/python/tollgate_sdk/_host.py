"""Access to reviews: Tollgate itself in a plugin, and a review in memory in a test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollgate_sdk._review import Node, Part, Request, Value
    from tollgate_sdk.access import Decision, Path, Resource, ServiceAccount
    from tollgate_sdk.images import Failure, Verified
    from tollgate_sdk.images import Request as ImageRequest


class Host(Protocol):
    """The contract's imports, with Python types."""

    def request(self) -> Request: ...

    def get(self, part: Part, at: str) -> tuple[Value] | None:
        """Returns the value in a tuple, because JSON null is None."""
        ...

    def get_json(self, part: Part, at: str) -> str | None: ...

    def get_many(self, part: Part, at: list[str]) -> list[tuple[Value] | None]: ...

    def keys(self, part: Part, at: str) -> list[str] | None: ...

    def select(self, part: Part, pattern: str) -> list[Node]: ...

    def warn(self, message: str) -> None: ...

    def annotate(self, key: str, value: str) -> None: ...

    def log(self, level: str, message: str) -> None: ...

    def now(self) -> datetime: ...

    @property
    def lookups(self) -> LookupHost: ...

    def check_access(self, action: Resource | Path, account: ServiceAccount | None) -> Decision: ...

    def verify_images(self, requests: list[ImageRequest]) -> list[Verified | Failure]: ...


@dataclass(frozen=True)
class Found:
    """An object as the host returns it. The fields are JSON text."""

    namespace: str | None
    name: str
    fields: str


class LookupHost(Protocol):
    """The interface ``cluster``, with Python types. A page is some objects and what the next call passes as ``after``."""

    def get(self, lookup: str, namespace: str | None, name: str) -> Found | None: ...

    def find(self, lookup: str, index: str, key: str, after: str | None) -> tuple[list[Found], str | None]: ...

    def list(self, lookup: str, namespace: str | None, after: str | None) -> tuple[list[Found], str | None]: ...


_current: Host | None = None


def use(host: Host | None) -> Host | None:
    """Replaces the host for reviews, and returns the previous one."""
    global _current
    before, _current = _current, host
    return before


def current() -> Host:
    """Returns the current host."""
    if _current is None:
        raise RuntimeError("there is no review outside of validate and mutate")
    return _current


def abort(error: Exception) -> None:
    """Ends the call of a plugin with an error. Returns in a test, and while a policy is loading."""
    end = getattr(_current, "abort", None)
    if end is not None:
        end(error)
