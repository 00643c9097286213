"""The review as typed access to four JSON documents. The host parsed them; a read costs what it returns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tollgate_sdk._check import exact, text
from tollgate_sdk._host import current

Part = Literal["object", "old-object", "options", "request"]


@dataclass(frozen=True)
class Container:
    """An array or object of a document, of which only the length is known."""

    kind: Literal["array", "object"]
    length: int


Value = None | bool | int | float | str | Container
"""What stands in a document. Integers are exact; a float is any other number."""


@dataclass(frozen=True)
class Node:
    """A place in a document and what stands there."""

    pointer: str
    """Complete and escaped: it can be used in a patch or a denial as it is."""
    value: Value


@dataclass(frozen=True)
class GroupVersionKind:
    """A kind, fully qualified; the core group is empty."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True)
class GroupVersionResource:
    """A resource, fully qualified; the core group is empty."""

    group: str
    version: str
    resource: str


@dataclass(frozen=True)
class Request:
    """What kube-apiserver says of the request."""

    uid: str
    operation: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str | None
    name: str
    """Empty on CREATE with generateName and on deletecollection."""
    namespace: str | None
    dry_run: bool
    """Nothing will be persisted."""


class Document:
    """One of the JSON documents of a review.

    Places are JSON Pointers such as ``/spec/containers/0/image``. One that is not well formed ends the call as a fault
    of the plugin: a typo must not read as absent.
    """

    __slots__ = ("_part",)

    def __init__(self, part: Part) -> None:
        self._part = part

    @property
    def exists(self) -> bool:
        """Whether the document is there at all."""
        return self.has("")

    def has(self, at: str) -> bool:
        """Whether anything stands at a pointer, be it null."""
        return current().get(self._part, _place(at)) is not None

    def get(self, at: str) -> Value:
        """What stands at a pointer; None when there is nothing, and for JSON null. ``has`` tells them apart."""
        found = current().get(self._part, _place(at))
        return None if found is None else found[0]

    def text(self, at: str) -> str | None:
        """The string; None when nothing or something else is there."""
        found = self.get(at)
        return found if isinstance(found, str) else None

    def boolean(self, at: str) -> bool | None:
        """The boolean; None when nothing or something else is there."""
        found = self.get(at)
        return found if isinstance(found, bool) else None

    def integer(self, at: str) -> int | None:
        """The whole number, exact; None when nothing or something else is there."""
        found = self.get(at)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def number(self, at: str) -> float | None:
        """The number, rounded to a double; None when nothing or something else is there."""
        found = self.get(at)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def length(self, at: str) -> int | None:
        """How many elements or members; None when neither array nor object is there."""
        found = self.get(at)
        return found.length if isinstance(found, Container) else None

    def keys(self, at: str) -> list[str] | None:
        """The member names of an object, not escaped; None when no object is there."""
        return current().keys(self._part, _place(at))

    def select(self, pattern: str) -> list[Node]:
        """Every place that matches: in ``/spec/containers/*/image`` the ``*`` stands for any element or member."""
        return current().select(self._part, _place(pattern))

    def json(self, at: str) -> str | None:
        """The JSON text; None when there is nothing. Numbers stand in it digit by digit as they were received."""
        return current().get_json(self._part, _place(at))

    def read(self, at: str) -> Any:
        """What stands there, parsed, which costs its size; None when there is nothing."""
        found = self.json(at)
        return None if found is None else json.loads(found)


def _place(at: str) -> str:
    return exact(at, "a pointer into the review")


class Review:
    """The one review that the plugin is called for."""

    object = Document("object")
    """The object, as the plugins before this one left it. Absent on DELETE."""
    old_object = Document("old-object")
    """The object before the request. Absent on CREATE and CONNECT."""
    options = Document("options")
    """The operation's options, such as CreateOptions."""
    request_document = Document("request")
    """The AdmissionRequest itself without object, oldObject and options: ``/userInfo/username``, …."""

    @property
    def request(self) -> Request:
        """Brings a dozen strings from the host: keep it where it is used more than once."""
        return current().request()

    @property
    def operation(self) -> str:
        """``request.operation``, for a fraction of its cost."""
        return self.request_document.text("/operation") or ""

    def changes(self, at: str) -> bool:
        """Whether the request makes something else of what stands at a pointer."""
        return self.object.json(at) != self.old_object.json(at)

    def warn(self, message: str) -> None:
        """Shows a warning to the user who made the request. At most 120 characters are advised."""
        current().warn(text(message, "a warning"))

    def annotate(self, key: str, value: str) -> None:
        """Records something in kube-apiserver's audit log.

        A key has at most 63 letters, digits, dashes, underscores and dots.
        """
        current().annotate(exact(key, "the key of an annotation"), text(value, "the value of an annotation"))
