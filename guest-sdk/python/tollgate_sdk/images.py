"""The images capability: whether container images are signed as a policy of the configuration requires.

The host does not load a plugin that imports this module unless its configuration has ``images``::

    from tollgate_sdk import images

    nodes = review.object.select("/spec/containers/*/image")
    answers = images.verify([images.Request(str(node.value), "release") for node in nodes])
    denial = Denial("images must be signed")
    for node, answer in zip(nodes, answers, strict=True):
        if not isinstance(answer, images.Verified):
            denial.at(node.pointer, str(answer))
    return denial.if_blamed()

The host asks registries, and remembers the answers for as long as the configuration says. A question that it has to pass
on starts the call anew, so a plugin asks about all images in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tollgate_sdk._check import describe, exact, sequence
from tollgate_sdk._host import current


@dataclass(frozen=True)
class Request:
    """An image, and the policy that it must meet."""

    image: str
    """The image as the object names it, such as ``nginx:1.29``."""
    policy: str
    """The name of a policy of the configuration."""


@dataclass(frozen=True)
class Verified:
    """An image that meets its policy."""

    digest: str
    """The digest that was verified."""
    pinned: bool
    """Whether the image names the digest itself.

    If not, its tag can lead to another digest by the time that a node pulls it.
    """
    signers: tuple[str, ...]
    """The names of the signers who have signed."""
    last_known_good: bool
    """Whether a registry has not answered, and an earlier verification of this digest counts."""


class Failure(Exception):
    """The reason why an image does not count as verified. A plugin that enforces denies the request.

    The text names no user and no credentials. Each kind is a class of its own.
    """

    _BEGINNING: ClassVar[str]

    def __init__(self, reason: str, digest: str | None = None) -> None:
        super().__init__(f"{self._BEGINNING}: {reason}")
        self.reason = reason
        """The rules that are not met, and what was found."""
        self.digest = digest
        """The digest whose signatures were examined. Only ``Unsigned`` and ``Untrusted`` have it."""


class Malformed(Failure):
    """No node could pull the image, or its digest is not SHA-256."""

    _BEGINNING = "no valid image"


class NotGranted(Failure):
    """The configuration has no such policy, the policy does not cover the repository, or the registry is not listed."""

    _BEGINNING = "not granted"


class NotFound(Failure):
    """The registry has no such tag."""

    _BEGINNING = "not found"


class Unsigned(Failure):
    """The image has no signature."""

    _BEGINNING = "not signed"


class Untrusted(Failure):
    """The image has signatures or attestations, and they do not meet the policy."""

    _BEGINNING = "not signed as required"


class Unavailable(Failure):
    """A registry has not answered, and no earlier answer counts.

    It must not count as "verified".
    """

    _BEGINNING = "cannot be verified now"


def verify(requests: Sequence[Request]) -> list[Verified | Failure]:
    """Verifies images, all at the same time.

    Returns an answer for each request, in the same order, and raises none of them. A call may ask about at most 128
    different images; further ones are :class:`NotGranted`.
    """
    asked = sequence(requests, "the list of requests", _request)
    answers = current().verify_images(asked)
    # A policy that goes over the answers would take an image without one for verified.
    if len(answers) != len(asked):
        raise RuntimeError(f"the host has answered {len(answers)} of {len(asked)} requests about images")
    return answers


def _request(request: Any, what: str) -> Request:
    if not isinstance(request, Request):
        raise TypeError(f"{what} is not a Request but {describe(request)}")
    exact(request.image, f"the image of {what}")
    exact(request.policy, f"the policy of {what}")
    return request
