"""Turns a policy module into the exports of a component. The entry point that the build writes uses this module."""

from __future__ import annotations

import datetime as datetimes
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from types import CodeType, CoroutineType, FrameType, ModuleType, TracebackType
from typing import Any, TypeVar

from wit_world.imports import logging as host_logging
from wit_world.imports import review as host_review
from wit_world.imports import types as contract

from tollgate_sdk import _host, _policy, _room, _system
from tollgate_sdk._check import describe, exact, mended, optional, sequence, status, text, texts
from tollgate_sdk._denial import Allow, Cause, Denial
from tollgate_sdk._manifest import Manifest, Rule
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
from tollgate_sdk._settings import SettingsErrors, schema

Answer = TypeVar("Answer")

_PARTS = {
    "object": host_review.Part.OBJECT,
    "old-object": host_review.Part.OLD_OBJECT,
    "options": host_review.Part.OPTIONS,
    "request": host_review.Part.REQUEST,
    "namespace": host_review.Part.NAMESPACE,
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

    def get_many(self, part: Part, at: list[str]) -> list[tuple[Value] | None]:
        found = host_review.get_many(_PARTS[part], at)
        return [None if one is None else (_value(one),) for one in found]

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

    def abort(self, error: Exception) -> None:
        _log.flush()
        host_logging.abort(_words(error), _calling_place(sys._getframe()))

    def now(self) -> datetimes.datetime:
        from wit_world.imports import clock

        found = clock.now()
        moment = datetimes.datetime.fromtimestamp(found.seconds, datetimes.UTC)
        return moment.replace(microsecond=found.nanoseconds // 1000)

    @property
    def lookups(self) -> _host.LookupHost:
        return _Lookups()

    def check_access(self, action: Any, account: Any) -> Any:
        # Imported here, because a plugin without the capability does not have these modules.
        from componentize_py_types import Err
        from wit_world.imports import access as host_access

        from tollgate_sdk.access import Decision, NotGranted, Path, Unavailable

        asked: Any
        if isinstance(action, Path):
            asked = host_access.Action_Path(host_access.PathAction(action.verb, action.path))
        else:
            asked = host_access.Action_Resource(
                host_access.ResourceAction(
                    action.verb, action.group, action.resource, action.subresource, action.namespace, action.name
                )
            )
        of = None if account is None else host_access.ServiceAccount(account.namespace, account.name)
        try:
            found = host_access.check(asked, of)
        except Err as failed:
            kind = NotGranted if isinstance(failed.value, host_access.Failure_NotGranted) else Unavailable
            raise kind(failed.value.value) from None
        return Decision(found.allowed, found.reason, found.error)

    def verify_images(self, requests: list[Any]) -> list[Any]:
        # Imported here, because a plugin without the capability does not have this module.
        from wit_world.imports import images as host_images

        asked = [host_images.Request(request.image, request.policy) for request in requests]
        return [_image_answer(answer) for answer in host_images.verify(asked)]


def _image_answer(answer: Any) -> Any:
    from componentize_py_types import Err
    from wit_world.imports import images as host_images

    from tollgate_sdk import images

    found = answer.value
    if not isinstance(answer, Err):
        return images.Verified(found.digest, found.pinned, tuple(found.signers), found.last_known_good)
    match found:
        case host_images.Failure_Unsigned(refusal):
            return images.Unsigned(refusal.reason, refusal.digest)
        case host_images.Failure_Untrusted(refusal):
            return images.Untrusted(refusal.reason, refusal.digest)
        case host_images.Failure_Malformed(reason):
            return images.Malformed(reason)
        case host_images.Failure_NotFound(reason):
            return images.NotFound(reason)
        case host_images.Failure_NotGranted(reason):
            return images.NotGranted(reason)
        case _:
            return images.Unavailable(found.value)


class _Lookups:
    def get(self, lookup: str, namespace: str | None, name: str) -> _host.Found | None:
        from wit_world.imports import cluster

        found = _answer(lambda: cluster.get(lookup, namespace, name))
        return None if found is None else _found(found)

    def find(self, lookup: str, index: str, key: str, after: str | None) -> _Page:
        from wit_world.imports import cluster

        return _page(_answer(lambda: cluster.find(lookup, index, key, after)))

    def list(self, lookup: str, namespace: str | None, after: str | None) -> _Page:
        from wit_world.imports import cluster

        return _page(_answer(lambda: cluster.list(lookup, namespace, after)))


_Page = tuple[list[_host.Found], str | None]


def _answer(call: Callable[[], Any]) -> Any:
    # Imported here, because a plugin without lookups does not have these modules.
    from componentize_py_types import Err
    from wit_world.imports import cluster

    from tollgate_sdk.cluster import NotGranted, NotSynchronised

    try:
        return call()
    except Err as failed:
        kind = NotGranted if isinstance(failed.value, cluster.Failure_NotGranted) else NotSynchronised
        raise kind(failed.value.value) from None


def _page(page: Any) -> _Page:
    return [_found(found) for found in page.objects], page.next


def _found(found: Any) -> _host.Found:
    return _host.Found(found.namespace, found.name, found.fields)


def _value(value: Any) -> Value:
    match value:
        # Policies read texts most, and each pattern uses fuel.
        case contract.Value_Text():
            return value.value  # type: ignore[no-any-return]
        case contract.Value_Null():
            return None
        case contract.Value_Array(length):
            return Container("array", length)
        case contract.Value_Object(length):
            return Container("object", length)
        case _:
            return value.value  # type: ignore[no-any-return]


class Exports:
    """The exported functions for one policy: a module, or what imports it when the plugin loads."""

    def __init__(self, policy: ModuleType | None, finder: _room.Finder) -> None:
        self._imported = policy
        self._finder = finder
        self._configured: Any = None
        _host.use(_Host())
        _places.folder = _room.FOLDER if policy is None else f"{str(policy.__file__).rpartition('/')[0]}/"
        _system.route_logging(_write, _log)

    @property
    def _policy(self) -> ModuleType:
        if self._imported is None:
            try:
                self._imported = self._finder.load()
            except _system.NoSystem as error:
                error.args = (f"{error}; while it loads, it has them with {_room.ONE_STAGE}",)
                raise
            # The policy may have added handlers of its own.
            _system.route_logging(_write, _log)
        return self._imported

    def _guarded(self, run: Callable[[], Answer], function: str = "") -> Answer:
        return _guarded(run, self._finder, lambda: getattr(self._imported, function, None))

    def describe(self) -> Any:
        """Converts to the contract's type."""
        return self._guarded(self._describe)

    def _describe(self) -> Any:
        own = self._policy.manifest
        if not isinstance(own, Manifest):
            raise TypeError(f"manifest is not a Manifest but {describe(own)}")
        if not isinstance(own.labels, Mapping):
            raise TypeError(f"manifest.labels is not a mapping but {describe(own.labels)}")
        return contract.Manifest(
            exact(own.name, "manifest.name"),
            exact(own.version, "manifest.version"),
            text(own.description, "manifest.description"),
            optional(self._settings_schema(own), "manifest.settings_schema", exact),
            sequence(own.rules, "manifest.rules", _rule),
            [
                (exact(key, "a key of manifest.labels"), exact(value, f"manifest.labels[{key!r}]"))
                for key, value in own.labels.items()
            ],
        )

    def _settings_schema(self, own: Manifest) -> str | None:
        settings = getattr(self._policy, "Settings", None)
        return own.settings_schema if own.settings_schema is not None or settings is None else schema(settings)

    def configure(self, settings: str) -> Any:
        """Converts to the contract's type."""

        def run() -> Any:
            try:
                self._configured = _policy.configure(self._policy, settings)
            except SettingsErrors as wrong:
                return contract.Configured_Rejected(_settings_errors(wrong))
            return contract.Configured_Accepted()

        return self._guarded(run, "configure")

    def validate(self) -> Any:
        """Converts to the contract's type."""

        def run() -> Any:
            match _policy.validate(self._policy, self._configured):
                case Allow():
                    return contract.Verdict_Allow()
                case denial:
                    return contract.Verdict_Deny(_denial(denial))

        return self._guarded(run, "validate")

    def mutate(self) -> Any:
        """Converts to the contract's type."""
        return self._guarded(lambda: _mutation(_policy.mutate(self._policy, self._configured)), "mutate")


def _rule(rule: Any, what: str) -> Any:
    if not isinstance(rule, Rule):
        raise TypeError(f"{what} is not a Rule but {describe(rule)}")
    return contract.Rule(
        texts(rule.operations, f"{what}.operations"),
        texts(rule.api_groups, f"{what}.api_groups"),
        texts(rule.api_versions, f"{what}.api_versions"),
        texts(rule.resources, f"{what}.resources"),
        optional(rule.scope, f"{what}.scope", exact),
    )


def _settings_errors(wrong: SettingsErrors) -> list[Any]:
    return [
        contract.SettingsError(
            optional(setting, "the setting of an error", exact), text(message, "the message of an error")
        )
        for setting, message in wrong.errors
    ]


def _denial(denial: Denial) -> Any:
    # Checked again, because the policy may have set any of it since.
    return contract.Denial(
        text(denial.message, "the message of a denial"),
        optional(denial.code, "the code of a denial", status),
        optional(denial.reason, "the reason of a denial", exact),
        sequence(denial.causes, "the list of causes", _cause),
    )


def _cause(cause: Any, what: str) -> Any:
    if not isinstance(cause, Cause):
        raise TypeError(f"{what} is not a Cause but {describe(cause)}")
    return contract.Cause(cause.field, text(cause.message, "the message of a cause"), cause.reason)


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
        case Patch() | Whole("unchanged"):
            return contract.Mutation_Unchanged()
        case _:
            raise AssertionError(f"{describe(mutation)} is checked before")


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
        case _:
            raise AssertionError(f"{operation.op} is checked before")


def _guarded(run: Callable[[], Answer], finder: _room.Finder, function: Callable[[], Any]) -> Answer:
    # Not earlier, because the build has files and a terminal.
    _system.run()
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = _log  # type: ignore[misc]
    sys.meta_path[:] = [finder]
    _forgotten.clear()
    warnings._warn_unawaited_coroutine = _forget  # type: ignore[attr-defined]
    try:
        answer = run()
    except BaseException as error:
        _log.flush()
        host_logging.abort(_words(error), _place(error.__traceback__) or _start(function()))
        raise
    _log.flush()
    for code in _forgotten:
        host_logging.abort(
            f"{code.co_qualname} is async and was called without await, so it never ran: nothing in a plugin can be awaited",
            _places.location(code.co_filename, code.co_firstlineno),
        )
    return answer


# Python only warns of a coroutine that is never awaited. Such a check would count as one that found nothing.
_forgotten: list[CodeType] = []


def _forget(coroutine: CoroutineType[Any, Any, Any]) -> None:
    _forgotten.append(coroutine.cr_code)


def _words(error: BaseException) -> str:
    try:
        said = f"{error}"
    except BaseException:
        said = "its text cannot be made"
    return mended(f"{type(error).__name__}: {said}")


class _Places:
    """Knows which files belong to the author, and their names."""

    # The toolchain mounts each folder of sources as `/` and its number.
    _MOUNT = 2
    folder = "/"

    def location(self, file: str, line: int) -> Any:
        return host_logging.Location("/".join(PurePosixPath(file).parts[self._MOUNT :]), line, 0)


_places = _Places()


def _place(at: TracebackType | None) -> Any:
    """Finds the innermost place in a file of the author, or else of a package.

    (Package traceback would read the file.)
    """
    own = place = None
    # An endless recursion has a thousand frames, so the work for each must be small.
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if "/tollgate_sdk/" not in file:
            place = file, at.tb_lineno
            if file.startswith(_places.folder):
                own = place
        at = at.tb_next
    found = own or place
    return None if found is None else _places.location(*found)


def _start(function: Any) -> Any:
    """Finds the place of a function whose answer is wrong."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return None if code is None else _places.location(code.co_filename, code.co_firstlineno)


def _calling_place(at: FrameType | None) -> Any:
    """Finds the innermost place in a file of the author that is being called, or else of a package."""
    place = None
    while at is not None:
        file = at.f_code.co_filename
        if file.startswith(_places.folder):
            return _places.location(file, at.f_lineno)
        if place is None and "/tollgate_sdk/" not in file:
            place = file, at.f_lineno
        at = at.f_back
    return None if place is None else _places.location(*place)


def _write(level: str, message: str) -> None:
    host_logging.log(host_logging.Level[level.upper()], mended(message))


class _Log:
    """The target of ``print``: each line is a message in the log."""

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                _write("info", line)
        return len(text)

    def flush(self) -> None:
        if self._begun:
            self.write("\n")


_log: Any = _Log()
