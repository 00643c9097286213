"""The images of a test review: a list that the test gives, by the host's rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tollgate_sdk.images import (
    Failure,
    Malformed,
    NotFound,
    NotGranted,
    Request,
    Unavailable,
    Unsigned,
    Untrusted,
    Verified,
)

_KEYS = ("image", "policy", "result", "digest", "signers", "reason")
_FAILURES: dict[str, tuple[type[Failure], str]] = {
    "unsigned": (Unsigned, "it has no signature"),
    "untrusted": (Untrusted, "its signatures are by others"),
    "not-found": (NotFound, "the registry has no such tag"),
    "not-granted": (NotGranted, "the registry is not listed"),
    "unavailable": (Unavailable, "the registry does not answer"),
}
"""Each result that is a failure, with its general reason."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PART = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_PART}(?:\.{_PART})*|\[[0-9a-f:]+\])(?::[0-9]+)?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class Listed:
    """Answers from a list, as a suite has it. Every other image is not found."""

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        self._entries = [_entry(entry) for entry in entries]

    def answer(self, request: Request) -> Verified | Failure:
        """Returns what the list says about an image."""
        asked = _name(request.image)
        if asked is None:
            return Malformed("expected an image")
        for entry in self._entries:
            if entry.is_about(asked) and entry.policy in (None, request.policy):
                return entry.answer(pinned=asked.digest is not None)
        return NotFound(f"no entry of images is about {asked.full}")


def listed(given: Listed | None, requests: Sequence[Request]) -> list[Verified | Failure]:
    """Returns the answers of a test. Without a list, the capability is not granted."""
    if given is None:
        return [NotGranted("a test grants the capability: images([…])") for _ in requests]
    return [given.answer(request) for request in requests]


@dataclass(frozen=True)
class _Name:
    """An image with Docker's abbreviations resolved."""

    full: str
    repository: str
    digest: str | None


@dataclass(frozen=True)
class _Entry:
    name: _Name
    policy: str | None
    result: str
    digest: str
    signers: tuple[str, ...]
    reason: str | None

    def is_about(self, asked: _Name) -> bool:
        """Whether the entry is about an image. That of a tag is also about the digest that it gives to the tag."""
        if asked.digest is not None:
            return asked.digest == self.digest and asked.repository == self.name.repository
        return self.name.digest is None and asked.full == self.name.full

    def answer(self, *, pinned: bool) -> Verified | Failure:
        if self.result not in _FAILURES:
            return Verified(self.digest, pinned, self.signers, self.result == "last-known-good")
        kind, general = _FAILURES[self.result]
        return kind(self.reason or general, self.digest if kind in (Unsigned, Untrusted) else None)


def _entry(entry: dict[str, Any]) -> _Entry:
    unknown = [key for key in entry if key not in _KEYS]
    assert not unknown, f"the test's image is malformed: unknown key {unknown[0]}"
    name, result = _name(entry["image"]), entry["result"]
    assert name is not None, f"the test's image {entry['image']!r} is no image"
    assert result in (*_FAILURES, "verified", "last-known-good"), f"the test's image has the result {result!r}, which is none"
    digest = entry.get("digest") or name.digest or f"sha256:{hashlib.sha256(name.full.encode()).hexdigest()}"
    return _Entry(name, entry.get("policy"), result, digest, tuple(entry.get("signers", ())), entry.get("reason"))


def _name(image: str) -> _Name | None:
    """Reads an image like the host and container runtimes."""
    rest, has_digest, digest = image.partition("@")
    registry, is_there, path = rest.partition("/")
    is_host = registry == "localhost" or "." in registry or ":" in registry or registry != registry.lower()
    if not is_there or not is_host:
        registry, path = "docker.io", rest
    registry = "docker.io" if registry.lower() == "index.docker.io" else registry.lower()
    path, has_tag, tag = path.partition(":")
    tag = tag if has_tag else "latest"
    if registry == "docker.io" and "/" not in path:
        path = f"library/{path}"
    is_valid = _REGISTRY.fullmatch(registry) and _PATH.fullmatch(path) and _TAG.fullmatch(tag)
    if not is_valid or (has_digest and not _DIGEST.fullmatch(digest)):
        return None
    return _Name(f"{registry}/{path}:{tag}", f"{registry}/{path}", digest or None)
