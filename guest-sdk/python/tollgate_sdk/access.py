"""The access capability: whether the user of the request may do something in the cluster.

The host does not load a plugin that imports this module unless the configuration grants ``access``::

    from tollgate_sdk import access

    if not access.check(access.Resource("delete", "deployments", group="apps", namespace="shop")).allowed:
        return Denial("only those who may delete the Deployment may do this")

kube-apiserver answers, and the host remembers an answer for at most ten seconds. A question that the host has to pass on
starts the call anew, so a plugin asks late and seldom.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from tollgate_sdk._check import exact
from tollgate_sdk._host import current


class Failure(Exception):
    """The reason why there is no answer. The text is for the operator, and names no user.

    A plugin that enforces does not catch it: the call then ends as a fault, and its failure policy decides.
    """


class NotGranted(Failure):
    """The configuration does not let the plugin ask this."""

    def __init__(self, text: str) -> None:
        super().__init__(f"access not granted: {text}")


class Unavailable(Failure):
    """kube-apiserver has not answered, or the host has no authorizer.

    It must not count as "allowed".
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"access unavailable: {text}")


@dataclass(frozen=True)
class Resource:
    """An action on a resource. An empty text is "not set"."""

    verb: str
    """In lower case, such as ``delete``."""
    resource: str
    """In lower-case plural, such as ``pods``."""
    group: str = ""
    """The API group. Empty for the core group."""
    subresource: str = ""
    """Such as ``exec``."""
    namespace: str = ""
    """Empty for a cluster-scoped resource, and for "in all namespaces"."""
    name: str = ""
    """Empty for "all objects"."""


@dataclass(frozen=True)
class Path:
    """An action on a path that is no resource, such as ``get`` on ``/metrics``."""

    verb: str
    path: str


@dataclass(frozen=True)
class ServiceAccount:
    """A service account, which counts with its groups. The configuration has to grant ``serviceAccounts``."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Decision:
    """The answer of kube-apiserver."""

    allowed: bool
    """Whether the user may do it."""
    reason: str
    """May be empty, and may name roles and bindings."""
    error: str | None = None
    """What an authorizer of kube-apiserver failed at. ``allowed`` counts all the same."""


def check(action: Resource | Path, service_account: ServiceAccount | None = None) -> Decision:
    """Returns whether the user of the request may do something, or a service account. Raises a :class:`Failure`."""
    if not isinstance(action, Resource | Path):
        raise TypeError("the action is neither a Resource nor a Path")
    for text in astuple(action):
        exact(text, "a text of the action")
    if service_account is not None:
        for text in astuple(service_account):
            exact(text, "a text of the service account")
    return current().check_access(action, service_account)
