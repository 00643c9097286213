"""The lookups of a test review: objects that the test gives, by the host's rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tollgate_sdk._host import Found
from tollgate_sdk._tree import tokens, walk
from tollgate_sdk.cluster import NotGranted, NotSynchronised

_PAGE = 500
"""The most objects on one page, as in the host."""

_KNOWN = ("name", "resource", "namespaces", "labelSelector", "fields", "indexes", "secrets")
"""The keys of a lookup in the configuration."""


class Lookup:
    """A lookup with its objects, ordered by namespace and name."""

    def __init__(self, lookup: dict[str, Any], objects: Sequence[dict[str, Any]]) -> None:
        for key in lookup:
            if key not in _KNOWN:
                raise ValueError(f"the test's lookup is malformed: unknown key {key}")
        patterns = [tokens(pattern) for pattern in lookup.get("fields", [])]
        self.namespaces: Any = lookup.get("namespaces", "all")
        self.indexes: dict[str, str] = lookup.get("indexes", {})
        self.entries = [(whole, _found(whole, patterns)) for whole in objects]
        self.entries.sort(key=lambda entry: (entry[1].namespace or "", entry[1].name))


class Lookups:
    """The interface ``cluster`` for lookups by name. A lookup that is None is not synchronised."""

    def __init__(self, lookups: dict[str, Lookup | None]) -> None:
        self._lookups = lookups

    def get(self, lookup: str, namespace: str | None, name: str) -> Found | None:
        # A lookup of some namespaces has no cluster-scoped objects.
        entries = self._named(lookup, namespace or "").entries
        return next((found for _, found in entries if (found.namespace, found.name) == (namespace, name)), None)

    def find(self, lookup: str, index: str, key: str, after: str | None) -> Any:
        named = self._named(lookup, None)
        if index not in named.indexes:
            raise NotGranted(f"the lookup {lookup} has no index {index}")
        pattern = tokens(named.indexes[index])
        return _page(named, after, lambda whole, _: any(_key(node.value) == key for node in walk(pattern, whole)))

    def list(self, lookup: str, namespace: str | None, after: str | None) -> Any:
        return _page(
            self._named(lookup, namespace),
            after,
            lambda _, found: namespace is None or found.namespace == namespace,
        )

    def _named(self, name: str, namespace: str | None) -> Lookup:
        if name not in self._lookups:
            raise NotGranted(f"there is no lookup {name}; a test adds it: lookup({{…}}, […])")
        lookup = self._lookups[name]
        if lookup is None:
            raise NotSynchronised(f"the lookup {name}")
        if namespace is not None and lookup.namespaces != "all" and namespace not in lookup.namespaces:
            raise NotGranted(f"the lookup {name} does not cover the namespace {namespace}")
        return lookup


def _page(lookup: Lookup, after: str | None, is_chosen: Callable[[Any, Found], bool]) -> tuple[list[Found], str | None]:
    """Returns the page after a position among the chosen objects."""
    chosen = [found for whole, found in lookup.entries if is_chosen(whole, found)]
    begin = int(after or 0)
    end = begin + _PAGE
    return chosen[begin:end], str(end) if end < len(chosen) else None


def _found(whole: dict[str, Any], patterns: list[list[str]]) -> Found:
    metadata = whole.get("metadata") or {}
    if not isinstance(metadata.get("name"), str):
        raise ValueError("an object of a lookup has a name")
    kept = _keep(whole, patterns)
    return Found(metadata.get("namespace"), metadata["name"], json.dumps({} if kept is None else kept[0]))


def _key(value: Any) -> str | None:
    """Returns the key of a value in an index."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def _keep(value: Any, patterns: list[list[str]]) -> tuple[Any] | None:
    """Returns the part of a value that the patterns keep, in a tuple. None if they keep nothing of it.

    The elements of a list keep their places: an element of which nothing is kept becomes {}, [] or null.
    """
    if any(not pattern for pattern in patterns):
        return (value,)

    def below(name: str) -> list[list[str]]:
        return [rest for first, *rest in patterns if first in ("*", name)]

    if isinstance(value, dict):
        members = {name: kept[0] for name, one in value.items() if (kept := _keep(one, below(name)))}
        return (members,) if members else None
    if isinstance(value, list):
        found = [(one, _keep(one, below("*"))) for one in value]
        if any(kept for _, kept in found):
            return ([kept[0] if kept else _nothing_of(one) for one, kept in found],)
    return None


def _nothing_of(element: Any) -> Any:
    """Returns what holds the place of an element of which nothing is kept."""
    return {} if isinstance(element, dict) else [] if isinstance(element, list) else None
