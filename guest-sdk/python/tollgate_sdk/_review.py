"""The review as typed access to five JSON documents. The host has parsed them. A read costs the size of its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from tollgate_sdk._check import exact, text
from tollgate_sdk._host import current
from tollgate_sdk._pointer import checked

Part = Literal["object", "old-object", "options", "request", "namespace"]


@dataclass(frozen=True)
class Container:
    """An array or object of a document, as its length."""

    kind: Literal["array", "object"]
    length: int


Value = None | bool | int | float | str | Container
"""A value in a document. Integers are exact; a float is any other number."""


class Node(NamedTuple):
    """A place in a document, and its value."""

    pointer: str
    """Complete and escaped. Patches and denials accept it unchanged."""
    value: Value


@dataclass(frozen=True)
class GroupVersionKind:
    """A fully qualified kind. The core group is empty."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True)
class GroupVersionResource:
    """A fully qualified resource. The core group is empty."""

    group: str
    version: str
    resource: str


@dataclass(frozen=True)
class Request:
    """The request's metadata from kube-apiserver."""

    uid: str
    operation: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str | None
    name: str
    """Empty on CREATE with generateName and on deletecollection."""
    namespace: str | None
    dry_run: bool
    """True if kube-apiserver will not persist anything."""


class Source(Protocol):
    """The functions that read documents."""

    def get(self, part: Part, at: str) -> tuple[Value] | None: ...

    def get_json(self, part: Part, at: str) -> str | None: ...

    def get_many(self, part: Part, at: list[str]) -> list[tuple[Value] | None]: ...

    def keys(self, part: Part, at: str) -> list[str] | None: ...

    def select(self, part: Part, pattern: str) -> list[Node]: ...


class Document:
    """One of the JSON documents of a review.

    Places are JSON Pointers such as ``/spec/containers/0/image``. A malformed pointer ends the call as a fault of the
    plugin. Otherwise a typo would read as absent.
    """

    __slots__ = ("_part", "_source")

    def __init__(self, part: Part, source: Callable[[], Source] = current) -> None:
        self._part = part
        self._source = source

    @property
    def exists(self) -> bool:
        """Whether the document exists."""
        return self.has("")

    def has(self, at: str) -> bool:
        """Whether there is a value at a pointer, including null."""
        return self._source().get(self._part, _place(at)) is not None

    def get(self, at: str) -> Value:
        """Returns the value at a pointer. None for nothing and for JSON null; ``has`` distinguishes them."""
        found = self._source().get(self._part, _place(at))
        return None if found is None else found[0]

    def get_many(self, at: Iterable[str]) -> list[Value]:
        """Returns the values at several pointers, in their order, with one call of the host.

        None for nothing and for JSON null, like ``get``.
        """
        found = self._source().get_many(self._part, [_place(one) for one in at])
        return [None if one is None else one[0] for one in found]

    def text(self, at: str) -> str | None:
        """Returns the string. None for nothing or another type."""
        found = self.get(at)
        return found if isinstance(found, str) else None

    def boolean(self, at: str) -> bool | None:
        """Returns the boolean. None for nothing or another type."""
        found = self.get(at)
        return found if isinstance(found, bool) else None

    def integer(self, at: str) -> int | None:
        """Returns the exact integer. None for nothing or another type."""
        found = self.get(at)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def number(self, at: str) -> float | None:
        """Returns the number, rounded to a double. None for nothing or another type."""
        found = self.get(at)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def length(self, at: str) -> int | None:
        """Returns the number of elements or members. None for nothing or another type."""
        found = self.get(at)
        return found.length if isinstance(found, Container) else None

    def keys(self, at: str) -> list[str] | None:
        """Returns the member names of an object, not escaped. None if there is no object."""
        return self._source().keys(self._part, _place(at))

    def select(self, pattern: str) -> list[Node]:
        """Returns every place that matches:

        in ``/spec/containers/*/image``, the ``*`` matches any element or member.
        """
        return self._source().select(self._part, _place(pattern))

    def json(self, at: str) -> str | None:
        """Returns the JSON text. None if there is nothing. Numbers keep their original digits."""
        return self._source().get_json(self._part, _place(at))

    def read(self, at: str) -> Any:
        """Returns the parsed value. The cost is its size. None if there is nothing."""
        found = self.json(at)
        return None if found is None else json.loads(found)


def _place(at: str) -> str:
    # Nearly every pointer is like this, and every call of a function uses fuel.
    if isinstance(at, str) and at.isascii() and at.startswith("/") and "~" not in at:
        return at
    return checked(exact(at, "a pointer into the review"))


class Review:
    """The review for which the host called the plugin."""

    object = Document("object")
    """The object, as the plugins before this one left it. Absent on DELETE."""
    old_object = Document("old-object")
    """The object before the request. Absent on CREATE and CONNECT."""
    options = Document("options")
    """The operation's options, such as CreateOptions."""
    request_document = Document("request")
    """The AdmissionRequest itself without object, oldObject and options: ``/userInfo/username``, …."""
    namespace = Document("namespace")
    """The Namespace of the object: apiVersion, kind and metadata with labels and annotations. No grant is needed.

    Absent only for a cluster-scoped object. A Namespace is in itself. If the host cannot find out about the namespace,
    the call ends as a fault. The host's cache can lag behind the cluster by moments.
    """

    @property
    def request(self) -> Request:
        """Copies a dozen strings from the host. Keep the result if you need it more than once."""
        return current().request()

    @property
    def operation(self) -> str:
        """Returns ``request.operation``, for a fraction of its cost."""
        return self.request_document.text("/operation") or ""

    def changes(self, at: str) -> bool:
        """Whether the request changes the value at a pointer."""
        return self.object.json(at) != self.old_object.json(at)

    def warn(self, message: str) -> None:
        """Shows a warning to the user who made the request. Kubernetes recommends at most 120 characters."""
        current().warn(text(message, "a warning"))

    def annotate(self, key: str, value: str) -> None:
        """Adds an annotation to kube-apiserver's audit log.

        A key has at most 63 letters, digits, dashes, underscores and dots.
        """
        current().annotate(exact(key, "the key of an annotation"), text(value, "the value of an annotation"))
