"""The answers of a mutator: nothing, a JSON Patch, a merge patch or a whole object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from tollgate_sdk._check import exact
from tollgate_sdk._pointer import checked, parent
from tollgate_sdk._review import Container, Document


class Mutation:
    """An answer of ``mutate``."""


@dataclass(frozen=True)
class Whole(Mutation):
    """An answer with one JSON text, or with none."""

    kind: Literal["unchanged", "merge-patch", "object"]
    json: str = ""


UNCHANGED: Final = Whole("unchanged")
"""The object stays as it is."""


def merge(value: Any) -> Mutation:
    """A merge patch, RFC 7386. Members are merged, None removes a member, and lists are replaced as a whole."""
    return Whole("merge-patch", _json(value))


def whole_object(value: Any) -> Mutation:
    """The whole new object."""
    return Whole("object", _json(value))


_OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")


@dataclass(frozen=True)
class PatchOperation:
    """One operation. ``value`` is JSON text."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: str
    value: str = ""
    from_: str = ""

    def __post_init__(self) -> None:
        if self.op not in _OPERATIONS:
            raise ValueError(f"{self.op!r} is no operation; there are: {', '.join(_OPERATIONS)}")
        checked(exact(self.path, "the path of an operation"))
        exact(self.value, "the value of an operation")
        checked(exact(self.from_, "the place that an operation takes from"))


class Patch(Mutation):
    """A JSON Patch, RFC 6902, under construction. Its functions return the patch."""

    def __init__(self) -> None:
        self.operations: list[PatchOperation] = []
        self._created: set[str] = set()

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, path: str, value: Any) -> Self:
        """Sets a member, or inserts before a list's element (``-``: after the last). The parent must exist."""
        return self._with(PatchOperation("add", path, _json(value)))

    def replace(self, path: str, value: Any) -> Self:
        """Replaces an existing value."""
        return self._with(PatchOperation("replace", path, _json(value)))

    def remove(self, path: str) -> Self:
        """Removes an existing value."""
        return self._with(PatchOperation("remove", path))

    def move(self, from_: str, path: str) -> Self:
        """Moves an existing value."""
        return self._with(PatchOperation("move", path, from_=from_))

    def copy(self, from_: str, path: str) -> Self:
        """Copies an existing value."""
        return self._with(PatchOperation("copy", path, from_=from_))

    def test(self, path: str, value: Any) -> Self:
        """Tests that a value exists. Otherwise the patch fails, as a fault of the plugin."""
        return self._with(PatchOperation("test", path, _json(value)))

    def set(self, document: Document, path: str, value: Any) -> Self:
        """Sets a member, and creates missing objects on the way. A list's element is replaced.

        Reads the document, which is the object before this patch. Knows the results of earlier calls of ``set`` and
        ``append``, but not those of other operations.
        """
        checked(exact(path, "the path of an operation"))
        missing: list[str] = []
        in_list = False
        place = parent(path)
        while place and place not in self._created:
            found = document.get(place)
            if found is not None:
                in_list = not missing and isinstance(found, Container) and found.kind == "array"
                break
            missing.append(place)
            place = parent(place)
        for place in reversed(missing):
            self.add(place, {})
            self._created.add(place)
        return self.replace(path, value) if in_list else self.add(path, value)

    def append(self, document: Document, to: str, value: Any) -> Self:
        """Adds after the last element of a list, and creates the list if it is missing."""
        if to not in self._created and document.get(to) is None:
            self.set(document, to, [])
            self._created.add(to)
        return self.add(f"{to}/-", value)

    def _with(self, operation: PatchOperation) -> Self:
        self.operations.append(operation)
        return self


def _json(value: Any) -> str:
    # NaN and the infinities are not JSON.
    return exact(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")), "a value")
