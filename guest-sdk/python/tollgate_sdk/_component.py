"""From a policy module to the exports of a component. What the build makes the entry of a plugin uses this."""

from __future__ import annotations

import datetime as datetimes
import sys
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from types import ModuleType, TracebackType
from typing import Any, NoReturn, TypeVar

from wit_world.imports import logging as host_logging
from wit_world.imports import review as host_review
from wit_world.imports import types as contract

from tollgate_sdk import _host, _policy
from tollgate_sdk._denial import Allow, Denial
from tollgate_sdk._manifest import Rule
from tollgate_sdk._patch import Mutation, Patch, PatchOperation, Whole
from tollgate_sdk._review import (
    Container,
    GroupVersionKind,
    GroupVersionResource,
    Node,
    Part,
    Request,
    Value,
)
from tollgate_sdk._settings import SettingsErrors

Answer = TypeVar("Answer")

_PARTS = {
    "object": host_review.Part.OBJECT,
    "old-object": host_review.Part.OLD_OBJECT,
    "options": host_review.Part.OPTIONS,
    "request": host_review.Part.REQUEST,
}


class _Host:
    def request(self) -> Request:
        found = host_review.request()
        return Request(
            found.uid,
            found.operation.name,
            GroupVersionKind(found.kind.group, found.kind.version, found.kind.kind),
            GroupVersionResource(found.resource.group, found.resource.version, found.resource.resource),
            found.sub_resource,
            found.name,
            found.namespace,
            found.dry_run,
        )

    def get(self, part: Part, at: str) -> tuple[Value] | None:
        found = host_review.get(_PARTS[part], at)
        return None if found is None else (_value(found),)

    def get_json(self, part: Part, at: str) -> str | None:
        return host_review.get_json(_PARTS[part], at)  # type: ignore[no-any-return]

    def keys(self, part: Part, at: str) -> list[str] | None:
        return host_review.keys(_PARTS[part], at)  # type: ignore[no-any-return]

    def select(self, part: Part, pattern: str) -> list[Node]:
        return [Node(node.pointer, _value(node.value)) for node in host_review.select(_PARTS[part], pattern)]

    def warn(self, message: str) -> None:
        host_review.warn(message)

    def annotate(self, key: str, value: str) -> None:
        host_review.annotate(key, value)

    def log(self, level: str, message: str) -> None:
        host_logging.log(host_logging.Level[level.upper()], message)

    def now(self) -> datetimes.datetime:
        from wit_world.imports import clock

        found = clock.now()
        moment = datetimes.datetime.fromtimestamp(found.seconds, datetimes.UTC)
        return moment.replace(microsecond=found.nanoseconds // 1000)


def _value(value: Any) -> Value:
    match value:
        case contract.Value_Null():
            return None
        case contract.Value_Array(length):
            return Container("array", length)
        case contract.Value_Object(length):
            return Container("object", length)
        case _:
            return value.value  # type: ignore[no-any-return]


class Exports:
    """What the exported functions do, for one policy."""

    def __init__(self, policy: ModuleType) -> None:
        self._policy = policy
        self._configured: Any = None
        _host.use(_Host())

    def describe(self) -> Any:
        """As the contract has it."""
        return _guarded(self._describe)

    def _describe(self) -> Any:
        own = self._policy.manifest
        return contract.Manifest(
            own.name,
            own.version,
            own.description,
            own.settings_schema,
            [_rule(rule) for rule in own.rules],
            list(own.labels.items()),
        )

    def configure(self, settings: str) -> Any:
        """As the contract has it."""

        def run() -> Any:
            try:
                self._configured = _policy.configure(self._policy, settings)
            except SettingsErrors as wrong:
                return contract.Configured_Rejected([contract.SettingsError(*error) for error in wrong.errors])
            return contract.Configured_Accepted()

        return _guarded(run)

    def validate(self) -> Any:
        """As the contract has it."""

        def run() -> Any:
            match _policy.validate(self._policy, self._configured):
                case Allow():
                    return contract.Verdict_Allow()
                case denial:
                    return contract.Verdict_Deny(_denial(denial))

        return _guarded(run)

    def mutate(self) -> Any:
        """As the contract has it."""
        return _guarded(lambda: _mutation(_policy.mutate(self._policy, self._configured)))


def _rule(rule: Rule) -> Any:
    return contract.Rule(
        list(rule.operations), list(rule.api_groups), list(rule.api_versions), list(rule.resources), rule.scope
    )


def _denial(denial: Denial) -> Any:
    causes = [contract.Cause(cause.field, cause.message, cause.reason) for cause in denial.causes]
    return contract.Denial(denial.message, denial.code, denial.reason, causes)


def _mutation(mutation: Mutation | Denial) -> Any:
    match mutation:
        case Denial():
            return contract.Mutation_Deny(_denial(mutation))
        case Patch() if len(mutation) > 0:
            return contract.Mutation_JsonPatch([_operation(operation) for operation in mutation.operations])
        case Whole("merge-patch", json):
            return contract.Mutation_MergePatch(json)
        case Whole("object", json):
            return contract.Mutation_Object(json)
        case _:
            return contract.Mutation_Unchanged()


def _operation(operation: PatchOperation) -> Any:
    value = contract.PlaceValue(operation.path, contract.NewValue_Json(operation.value))
    places = contract.FromPath(operation.from_, operation.path)
    match operation.op:
        case "add":
            return contract.PatchOperation_Add(value)
        case "replace":
            return contract.PatchOperation_Replace(value)
        case "test":
            return contract.PatchOperation_Test(value)
        case "remove":
            return contract.PatchOperation_Remove(operation.path)
        case "move":
            return contract.PatchOperation_Move(places)
        case "copy":
            return contract.PatchOperation_Copy(places)


def _guarded(run: Callable[[], Answer]) -> Answer:
    # Not before: the build has files and a terminal.
    sys.stdout = sys.stderr = _Log()
    sys.meta_path[:] = [_NoLateImports()]
    try:
        return run()
    except BaseException as error:
        host_logging.abort(f"{type(error).__name__}: {error}", _place(error.__traceback__))
        raise


# The toolchain mounts each folder of sources as `/` and its number.
_MOUNT = 2


def _place(at: TracebackType | None) -> Any:
    """The innermost place in a file of the author's. (Package traceback would read the file.)"""
    place = None
    while at is not None:
        parts = PurePosixPath(at.tb_frame.f_code.co_filename).parts
        if "tollgate_sdk" not in parts:
            place = host_logging.Location("/".join(parts[_MOUNT:]), at.tb_lineno, 0)
        at = at.tb_next
    return place


def without_clock() -> None:
    """Makes reading the time an exception with a reason: without this it ends the call without a word."""
    for name in ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "time", "time_ns"):
        setattr(time, name, _no_clock)
    datetimes.datetime = _Datetime  # type: ignore[misc]
    datetimes.date = _Date  # type: ignore[misc]


class _Log:
    def write(self, text: str) -> int:
        if text.strip():
            host_logging.log(host_logging.Level.INFO, text.rstrip("\n"))
        return len(text)

    def flush(self) -> None:
        pass


def _no_clock(*_: object) -> NoReturn:
    raise RuntimeError("a plugin has no clock: use tollgate_sdk.clock, and grant the capability clock")


class _Date(datetimes.date):
    @classmethod
    def today(cls) -> NoReturn:
        _no_clock()


class _Datetime(datetimes.datetime):
    @classmethod
    def now(cls, tz: object = None) -> NoReturn:
        _no_clock()

    today = utcnow = now


class _NoLateImports:
    def find_spec(self, name: str, *_: object) -> NoReturn:
        raise ImportError(f"{name} is imported while the plugin runs, when there are no files: import it at the top")
