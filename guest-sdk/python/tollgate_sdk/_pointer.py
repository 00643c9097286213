"""JSON Pointers, RFC 6901."""

from __future__ import annotations

import re

from tollgate_sdk import _host


def pointer(*tokens: str | int) -> str:
    """Returns a pointer from tokens, and escapes them. Tokens are member names and element indices."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def parent(place: str) -> str | None:
    """Returns the container of a place. None for the whole document."""
    return place.rpartition("/")[0] if place else None


def checked(place: str) -> str:
    """Returns a pointer unchanged. A malformed pointer ends the call at the author's line.

    The host also checks every pointer, but cannot tell the line.
    """
    if (place and place[0] != "/") or "~" in place:
        _refuse_malformed(place)
    return place


def _refuse_malformed(place: str) -> None:
    problem = _malformed(place)
    if problem is None:
        return
    error = ValueError(f"`{place}` is no JSON Pointer: {problem}")
    # In a plugin, `except` must not hide the problem: the place would read as absent.
    _host.abort(error)
    raise error


def _malformed(place: str) -> str | None:
    if place and place[0] != "/":
        return f"it has no leading slash; write `/{place}`"
    if re.search("~(?![01])", place):
        return "a `~` is followed by neither 0 nor 1; write `~0` for `~` and `~1` for `/`, or make it with pointer(…)"
    return None
