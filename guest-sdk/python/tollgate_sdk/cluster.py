"""The cluster capability: objects of the cluster, from the lookups of the plugin's configuration.

The host does not load a plugin that imports this module unless its configuration has ``lookups``::

    from tollgate_sdk import cluster

    for ingress in cluster.find("ingresses", "host", host):
        if ingress.namespace != review.request.namespace:
            return Denial("the host belongs to another namespace")

The host follows the cluster with a watch. Its answers can lag behind by moments, and two requests that are reviewed at
the same time do not see each other's objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tollgate_sdk._check import exact, optional
from tollgate_sdk._host import Found, current
from tollgate_sdk._review import Document, Node, Part, Value
from tollgate_sdk._tree import at_place, described, tokens, walk


class Failure(Exception):
    """The reason why a lookup has no answer. The text is for the operator, and names the lookup.

    A plugin that enforces does not catch it: the call then ends as a fault, and its failure policy decides.
    """


class NotGranted(Failure):
    """The configuration has no lookup of this name, no index of this name in it, or it does not cover this namespace."""

    def __init__(self, text: str) -> None:
        super().__init__(f"not granted: {text}")


class NotSynchronised(Failure):
    """The host has not read the objects yet, or has lost its connection for too long.

    It must not count as "there is none".
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"not synchronised: {text}")


class ClusterObject:
    """An object of the cluster, with the fields that the lookup keeps."""

    __slots__ = ("fields", "name", "namespace")

    def __init__(self, found: Found) -> None:
        self.namespace = found.namespace
        """None for a cluster-scoped object."""
        self.name = found.name
        """The object's name."""
        fields = _Fields(found.fields)
        self.fields = Document("object", lambda: fields)
        """The kept fields at their places in the object, such as ``/spec/rules/0/host``."""


def get(lookup: str, namespace: str | None, name: str) -> ClusterObject | None:
    """Returns one object by its name. None if there is no such object. Raises a :class:`Failure`."""
    found = current().lookups.get(_text(lookup, "lookup"), _where(namespace), _text(name, "object"))
    return None if found is None else ClusterObject(found)


def find(lookup: str, index: str, key: str) -> Iterator[ClusterObject]:
    """Returns the objects that have a key in an index of the lookup, ordered by namespace and name.

    The keys are the texts, numbers and booleans at the places of the index's pattern, as text. The loop asks the host
    for one page at a time. It raises a :class:`Failure`.
    """
    inside, by, wanted = _text(lookup, "lookup"), _text(index, "index"), exact(key, "the key")
    return _all(lambda after: current().lookups.find(inside, by, wanted, after))


def list(lookup: str, namespace: str | None = None) -> Iterator[ClusterObject]:
    """Returns all objects of a lookup, or those of one namespace, like ``find``."""
    inside, where = _text(lookup, "lookup"), _where(namespace)
    return _all(lambda after: current().lookups.list(inside, where, after))


def _all(page: Callable[[str | None], tuple[Any, str | None]]) -> Iterator[ClusterObject]:
    after: str | None = None
    while True:
        objects, after = page(after)
        for found in objects:
            yield ClusterObject(found)
        if after is None:
            return


class _Fields:
    """Reads a JSON text. It is parsed when a field is read for the first time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parsed: tuple[Any] | None = None

    def get(self, _: Part, at: str) -> tuple[Value] | None:
        found = self._at(at)
        return None if found is None else (described(found[0]),)

    def get_json(self, _: Part, at: str) -> str | None:
        found = (None,) if at == "" else self._at(at)
        if found is None:
            return None
        return self._text if at == "" else json.dumps(found[0], ensure_ascii=False)

    def get_many(self, part: Part, at: Any) -> Any:
        return [self.get(part, one) for one in at]

    def keys(self, _: Part, at: str) -> Any:
        found = self._at(at)
        return [*found[0]] if found is not None and isinstance(found[0], dict) else None

    def select(self, _: Part, pattern: str) -> Any:
        nodes: Iterator[Node] = walk(tokens(pattern), self._document())
        return [*nodes]

    def _at(self, at: str) -> tuple[Any] | None:
        return at_place(self._document(), tokens(at))

    def _document(self) -> Any:
        if self._parsed is None:
            self._parsed = (json.loads(self._text),)
        return self._parsed[0]


def _text(value: str, what: str) -> str:
    return exact(value, f"the name of the {what}")


def _where(namespace: str | None) -> str | None:
    return optional(namespace, "the namespace", exact)
