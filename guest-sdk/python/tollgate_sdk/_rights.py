"""The rights of a test review: rules that the test gives, by the host's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tollgate_sdk.access import Decision, NotGranted, Path, Resource, ServiceAccount, Unavailable

_KEYS = ("user", "group", "verb", "apiGroup", "resource", "namespace", "name", "path")


class Rights:
    """Answers questions by rules, as a suite has them. Without rules, kube-apiserver does not answer."""

    def __init__(self, rules: Sequence[dict[str, Any]] | None) -> None:
        for rule in rules or ():
            unknown = [key for key in rule if key not in _KEYS]
            assert not unknown, f"the test's rule is malformed: unknown key {unknown[0]}"
            for one, other in (("user", "group"), ("resource", "path")):
                assert (one in rule) != (other in rule), f"a rule of the test has one of {one} and {other}"
            assert "verb" in rule, "a rule of the test has a verb"
        self._rules = rules

    def check(self, action: Resource | Path, account: ServiceAccount | None, user: dict[str, Any]) -> Decision:
        """Returns what the rules say. ``user`` is the request's ``userInfo``."""
        if self._rules is None:
            raise Unavailable("kube-apiserver does not answer")
        name, groups = user.get("username", ""), list(user.get("groups") or [])
        if account is not None:
            name = f"system:serviceaccount:{account.namespace}:{account.name}"
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}"]
        for index, rule in enumerate(self._rules):
            is_theirs = _is(rule["user"], name) if "user" in rule else rule["group"] in groups
            if is_theirs and _covers(rule, action):
                return Decision(allowed=True, reason=f"access[{index}] allows it")
        return Decision(allowed=False, reason="no rule of access allows it")


def rights(given: Rights | None) -> Rights:
    """Returns the rights of a test. Without any, the capability is not granted."""
    if given is None:
        raise NotGranted("a test grants the capability: access([…])")
    return given


def _covers(rule: dict[str, Any], action: Resource | Path) -> bool:
    if not _is(rule["verb"], action.verb):
        return False
    if isinstance(action, Path):
        path = rule.get("path")
        if path is None:
            return False
        return action.path.startswith(path[:-1]) if path.endswith("*") else action.path == path
    if "resource" not in rule:
        return False
    resource, _, subresource = rule["resource"].partition("/")
    is_resource = rule["resource"] == "*" or (_is(resource, action.resource) and subresource == action.subresource)
    return (
        is_resource
        and _is(rule.get("apiGroup", ""), action.group)
        and rule.get("namespace", action.namespace) == action.namespace
        and rule.get("name", action.name) == action.name
    )


def _is(pattern: str, text: str) -> bool:
    return pattern in ("*", text)
