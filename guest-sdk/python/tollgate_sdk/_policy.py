"""Calls the functions of a policy module, and checks their answers. A malformed answer is never an allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tollgate_sdk import _settings
from tollgate_sdk._check import describe
from tollgate_sdk._denial import Allow, Denial
from tollgate_sdk._patch import Mutation, Patch, PatchOperation, Whole
from tollgate_sdk._review import Review


def configure(policy: ModuleType, text: str) -> Any:
    """Configures the policy. Raises SettingsErrors."""
    settings = _settings.read(text, getattr(policy, "Settings", None))
    make = getattr(policy, "configure", None)
    return settings if make is None else _synchronous("configure", make(settings))


def validate(policy: ModuleType, configured: Any) -> Allow | Denial:
    """Returns the verdict."""
    answer = _denial_or(lambda: policy.validate(Review(), configured), "validate")
    if isinstance(answer, Allow | Denial):
        return answer
    raise TypeError(f"validate returned {describe(answer)}; it has to return ALLOW or a Denial")


def mutate(policy: ModuleType, configured: Any) -> Mutation | Denial:
    """Returns the mutation."""
    answer = _denial_or(lambda: policy.mutate(Review(), configured), "mutate")
    if isinstance(answer, Mutation):
        return _mutation(answer)
    if isinstance(answer, Denial):
        return answer
    raise TypeError(f"mutate returned {describe(answer)}; it has to return UNCHANGED, a Patch or a Denial")


def _mutation(answer: Mutation) -> Mutation:
    """Rejects a mutation that does not come from this SDK's functions, because it could not be passed to the host."""
    match answer:
        case Patch(operations=list() as operations):
            if not all(isinstance(operation, PatchOperation) for operation in operations):
                raise TypeError("the operations of a Patch are not all PatchOperations; use its add, replace, remove, …")
        case Whole(kind="unchanged" | "merge-patch" | "object", json=str()):
            pass
        case _:
            raise TypeError(
                f"mutate returned {describe(answer)} of its own making; use UNCHANGED, Patch(), merge() or whole_object()"
            )
    return answer


def _denial_or(evaluate: Callable[[], Any], what: str) -> Any:
    try:
        return _synchronous(what, evaluate())
    except Denial as denial:
        return denial


def _synchronous(what: str, answer: Any) -> Any:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{what} is async, or returned something to be awaited: nothing in a plugin can be awaited")
    return answer
