"""Reviews for unit tests. Policies run in this Python, without WebAssembly and without a host.

::

    import policy
    from tollgate_sdk.testing import create

    def test_twelve_are_too_many() -> None:
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 12}}
        outcome = create(deployment).settings({"maxReplicas": 3}).validate(policy)
        assert outcome.causes == [("/spec/replicas", "must be at most 3")]

Pointers are read as strictly as in the host, and patches are applied strictly. There are no budgets.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType
from typing import Any, Self

import jsonpatch

from tollgate_sdk import _host, _policy
from tollgate_sdk._denial import Denial
from tollgate_sdk._listed import Listed, listed
from tollgate_sdk._lookups import Lookup, Lookups
from tollgate_sdk._patch import Mutation, Patch, Whole
from tollgate_sdk._review import (
    GroupVersionKind,
    GroupVersionResource,
    Node,
    Part,
    Request,
    Value,
)
from tollgate_sdk._rights import Rights, rights
from tollgate_sdk._tree import at_place, described, tokens, walk
from tollgate_sdk.access import Decision, Path, Resource, ServiceAccount
from tollgate_sdk.images import Failure, Verified
from tollgate_sdk.images import Request as ImageRequest

_UID = "00000000-0000-4000-8000-000000000000"


@dataclass
class Outcome:
    """The result of a policy."""

    denial: Denial | None = None
    """None if the policy allowed the request."""
    object: Any = None
    """The object after the mutation."""
    changed: bool = False
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)

    @property
    def causes(self) -> list[tuple[str, str]]:
        """The causes of the denial, as field and message."""
        causes = self.denial.causes if self.denial else []
        return [(cause.field or "", cause.message) for cause in causes]


class TestReview:
    """An admission review. The fields of the request are derived from the object."""

    __test__ = False

    def __init__(self, operation: str, new: Any, old: Any) -> None:
        self._documents: dict[str, Any] = {
            "object": new,
            "old-object": old,
            "options": None,
            "request": _request(operation, new if new is not None else old),
            "namespace": None,
        }
        self._settings: Any = {}
        self._now: datetime | None = None
        self._lookups: dict[str, Lookup | None] = {}
        self._rights: Rights | None = None
        self._images: Listed | None = None

    def having(self, **request: Any) -> Self:
        """Sets a field of the request, such as ``having(subResource="status")``."""
        self._documents["request"].update(request)
        return self

    def user(self, username: str, *groups: str) -> Self:
        """Sets the user who makes the request."""
        return self.having(userInfo={"username": username, "groups": list(groups)})

    def options(self, options: Any) -> Self:
        """Sets the operation's options."""
        self._documents["options"] = options
        return self

    def namespace_object(self, namespace: Any) -> Self:
        """Sets the Namespace of the object, and the request's namespace if the object names none.

        A policy sees only apiVersion, kind and metadata of it. A review of a Namespace does not need it, because a
        Namespace is in itself.
        """
        self._documents["namespace"] = namespace
        if not self._documents["request"].get("namespace"):
            self.having(namespace=namespace["metadata"]["name"])
        return self

    def settings(self, settings: Any) -> Self:
        """Sets the settings. The default is ``{}``."""
        self._settings = settings
        return self

    def at(self, now: datetime) -> Self:
        """Sets the time of the clock."""
        self._now = now
        return self

    def lookup(self, lookup: dict[str, Any], objects: Sequence[dict[str, Any]]) -> Self:
        """Adds a lookup, as the configuration has it under ``lookups``, with the objects that it holds.

        The policy sees only the objects' ``fields``, and finds them by ``indexes``. ``resource``, ``labelSelector`` and
        ``secrets`` have no effect here: give the objects that they select.
        """
        self._lookups[lookup["name"]] = Lookup(lookup, objects)
        return self

    def not_synchronised(self, lookup: str) -> Self:
        """Adds a lookup that the host has not read yet. All functions of ``tollgate_sdk.cluster`` raise for it."""
        self._lookups[lookup] = None
        return self

    def access(self, rules: Sequence[dict[str, Any]]) -> Self:
        """Grants the capability ``access``, with rules as in a suite. Everything that no rule allows is denied.

        A rule has ``user`` or ``group``, ``verb``, ``apiGroup`` (default ``""``), ``resource`` such as ``pods`` or
        ``pods/exec``, ``namespace`` and ``name`` (default: every one), or ``path`` instead of these.
        """
        self._rights = Rights(rules)
        return self

    def access_unavailable(self) -> Self:
        """Grants the capability ``access``. Every question is unavailable."""
        self._rights = Rights(None)
        return self

    def images(self, entries: Sequence[dict[str, Any]]) -> Self:
        """Grants the capability ``images``, with the images that registries have. Every other image is not found.

        An entry has ``image`` and ``result``: ``verified``, ``last-known-good``, ``unsigned``, ``untrusted``,
        ``not-found``, ``not-granted`` or ``unavailable``. It may have ``policy`` (default: every one), ``digest``,
        ``signers`` and ``reason``.
        """
        self._images = Listed(entries)
        return self

    def validate(self, policy: ModuleType) -> Outcome:
        """Validates the review. Raises errors of the policy, of its settings, and for malformed answers."""
        host, answer = self._evaluate(policy, _policy.validate)
        host.outcome.object = self._documents["object"]
        if isinstance(answer, Denial):
            host.outcome.denial = answer
        return host.outcome

    def mutate(self, policy: ModuleType) -> Outcome:
        """Mutates the object. Raises like ``validate``, and for a patch that does not apply."""
        host, answer = self._evaluate(policy, _policy.mutate)
        before = self._documents["object"]
        if isinstance(answer, Denial):
            host.outcome.denial, host.outcome.object = answer, before
        else:
            host.outcome.object = _changed(before, answer)
            host.outcome.changed = host.outcome.object != before
        return host.outcome

    def _evaluate(self, policy: ModuleType, call: Any) -> tuple[_Memory, Any]:
        host = _Memory(self._documents, self._now, self._lookups, self._rights, self._images)
        before = _host.use(host)
        try:
            return host, call(policy, _policy.configure(policy, json.dumps(self._settings)))
        finally:
            _host.use(before)


def create(new: Any) -> TestReview:
    """A review of the creation of an object."""
    return TestReview("CREATE", new, None)


def update(old: Any, new: Any) -> TestReview:
    """A review of the replacement of an object."""
    return TestReview("UPDATE", new, old)


def delete(old: Any) -> TestReview:
    """A review of the deletion of an object."""
    return TestReview("DELETE", None, old)


def connect(options: Any) -> TestReview:
    """A review of a new connection such as exec. The object is its options."""
    return TestReview("CONNECT", options, None)


def _changed(before: Any, mutation: Mutation) -> Any:
    match mutation:
        case Whole("unchanged"):
            return before
        case Patch() if len(mutation) == 0:
            return before
    if before is None:
        raise AssertionError("where there is no object, nothing can be changed")
    match mutation:
        case Patch():
            operations = [
                {"op": one.op, "path": one.path}
                | ({"from": one.from_} if one.op in ("move", "copy") else {})
                | ({"value": json.loads(one.value)} if one.value else {})
                for one in mutation.operations
            ]
            try:
                return jsonpatch.apply_patch(before, operations)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
                raise AssertionError(f"the patch does not apply: {error}") from error
        case Whole("merge-patch", text):
            return _merged(before, json.loads(text))
        case Whole(_, text):
            return json.loads(text)
    raise AssertionError(f"{mutation} is no mutation")


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _request(operation: str, about: Any) -> dict[str, Any]:
    about = about if isinstance(about, dict) else {}
    group, _, version = about.get("apiVersion", "v1").rpartition("/")
    metadata = about.get("metadata") or {}
    kind = {"group": group, "version": version, "kind": about.get("kind", "")}
    resource = {"group": group, "version": version, "resource": _plural(kind["kind"])}
    return {
        "uid": _UID,
        "operation": operation,
        "kind": kind,
        "requestKind": kind,
        "resource": resource,
        "requestResource": resource,
        "name": metadata.get("name", ""),
        **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:authenticated"]},
        "dryRun": False,
    }


def _plural(kind: str) -> str:
    """Forms the English plural like Kubernetes."""
    name = kind.lower()
    if name in ("", "endpoints"):
        return name
    if re.search("[^aeiou]y$", name):
        return name[:-1] + "ies"
    return name + ("es" if re.search("(s|x|ch|sh)$", name) else "s")


class _Memory:
    """A review in memory."""

    def __init__(
        self,
        documents: dict[str, Any],
        now: datetime | None,
        lookups: dict[str, Lookup | None],
        given: Rights | None,
        images: Listed | None,
    ) -> None:
        self._documents = documents
        self._now = now
        self.lookups = Lookups(lookups)
        self._rights = given
        self._images = images
        self.outcome = Outcome()

    def request(self) -> Request:
        found = self._documents["request"]
        return Request(
            found["uid"],
            found["operation"],
            GroupVersionKind(**found["kind"]),
            GroupVersionResource(**found["resource"]),
            found.get("subResource"),
            found["name"],
            found.get("namespace"),
            found["dryRun"],
        )

    def get(self, part: Part, at: str) -> tuple[Value] | None:
        found = self._find(part, at)
        return None if found is None else (described(found[0]),)

    def get_json(self, part: Part, at: str) -> str | None:
        found = self._find(part, at)
        return None if found is None else json.dumps(found[0], ensure_ascii=False)

    def get_many(self, part: Part, at: list[str]) -> list[tuple[Value] | None]:
        return [self.get(part, one) for one in at]

    def keys(self, part: Part, at: str) -> list[str] | None:
        found = self._find(part, at)
        return list(found[0]) if found is not None and isinstance(found[0], dict) else None

    def select(self, part: Part, pattern: str) -> list[Node]:
        document = self._document(part)
        path = tokens(pattern)
        return [] if document is None else list(walk(path, document))

    def warn(self, message: str) -> None:
        self.outcome.warnings.append(message)

    def annotate(self, key: str, value: str) -> None:
        self.outcome.annotations[key] = value

    def log(self, level: str, message: str) -> None:
        self.outcome.log.append((level, message))

    def now(self) -> datetime:
        assert self._now is not None, "a test of a policy that reads the clock sets it: at(datetime(…))"
        return self._now

    def check_access(self, action: Resource | Path, account: ServiceAccount | None) -> Decision:
        user = self._documents["request"].get("userInfo") or {}
        return rights(self._rights).check(action, account, user)

    def verify_images(self, requests: list[ImageRequest]) -> list[Verified | Failure]:
        return listed(self._images, requests)

    def _document(self, part: Part) -> Any:
        return _namespace(self._documents) if part == "namespace" else self._documents[part]

    def _find(self, part: Part, at: str) -> tuple[Any] | None:
        path = tokens(at)
        document = self._document(part)
        return None if document is None else at_place(document, path)


_NAMESPACE_METADATA = (
    "name",
    "generateName",
    "uid",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "finalizers",
)
"""Members of a Namespace's metadata that the host shows."""


def _namespace(documents: dict[str, Any]) -> Any:
    """Returns the Namespace that a policy sees, by the host's rules.

    Raises if the object is in a namespace and the test does not say which labels that has: the host would end the
    call.
    """
    request = documents["request"]
    resource = request["resource"]
    is_namespace = resource["group"] == "" and resource["resource"] == "namespaces"
    is_stored_later = not request.get("subResource") and request["operation"] in ("CREATE", "UPDATE")
    itself = documents["object" if is_stored_later else "old-object"] if is_namespace else None
    namespace = documents["namespace"] if itself is None else itself
    if namespace is None:
        assert not is_namespace and not request.get("namespace"), (
            "a test of a policy that reads the namespace sets it: namespace_object({…})"
        )
        return None
    given = namespace.get("metadata") or {}
    metadata = {name: given[name] for name in _NAMESPACE_METADATA if name in given}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
