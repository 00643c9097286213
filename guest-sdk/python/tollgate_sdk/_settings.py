"""Reads the settings from JSON into a dataclass. Every error has the pointer of its setting."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, Literal, NoReturn, Self, Union

from tollgate_sdk._pointer import pointer


class SettingsErrors(Exception):
    """All errors in the settings. ``__post_init__`` or ``configure`` raises it."""

    def __init__(self, message: str | None = None) -> None:
        """Without a message, there is no error yet."""
        super().__init__()
        self.errors: list[tuple[str | None, str]] = [] if message is None else [(None, message)]

    def at(self, setting: str, message: str) -> Self:
        """Adds an error about the setting at a pointer, and returns all of them."""
        self.errors.append((setting or None, message))
        return self

    def raise_if_any(self) -> None:
        """Raises itself if there are errors."""
        if self.errors:
            raise self

    def __str__(self) -> str:
        return "; ".join(message if setting is None else f"{setting}: {message}" for setting, message in self.errors)


def read(text: str, into: type[Any] | None) -> Any:
    """Returns the settings as a dataclass, or unchanged if the policy has none."""
    try:
        value = json.loads(text)
    except ValueError:
        raise SettingsErrors("the settings are not JSON") from None
    if into is None:
        return value
    errors = SettingsErrors()
    try:
        made = _dataclass(value, into, "", errors)
    except _Wrong:
        made = None
    errors.raise_if_any()
    return made


class _Wrong(Exception):
    """Stands for a value whose error has been reported."""


def _wrong(errors: SettingsErrors, at: str, message: str) -> NoReturn:
    errors.at(at, message)
    raise _Wrong


def _read(value: Any, kind: Any, at: str, errors: SettingsErrors) -> Any:
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, Union):
        if value is None and types.NoneType in of:
            return None
        return _read(value, next(one for one in of if one is not types.NoneType), at, errors)
    if origin is Literal:
        if not any(value == one and type(value) is type(one) for one in of):
            _wrong(errors, at, "must be one of " + ", ".join(map(json.dumps, of)))
        return value
    if origin in (list, tuple):
        if not isinstance(value, list):
            _wrong(errors, at, "must be a list")
        pairs = [(pointer(index), element) for index, element in enumerate(value)]
        return origin(_each(pairs, of[0], at, errors))
    if origin is dict:
        if not isinstance(value, dict):
            _wrong(errors, at, "must be an object")
        pairs = [(pointer(name), element) for name, element in value.items()]
        return dict(zip(value, _each(pairs, of[1], at, errors), strict=True))
    if is_dataclass(kind):
        return _dataclass(value, typing.cast(type[Any], kind), at, errors)
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool:
        _wrong(errors, at, f"must be {_NAMES.get(kind, kind.__name__)}")
    return value


_NAMES: dict[Any, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _each(pairs: list[tuple[str, Any]], kind: Any, at: str, errors: SettingsErrors) -> list[Any]:
    return _all([partial(_read, value, kind, at + token, errors) for token, value in pairs])


def _dataclass(value: Any, into: type[Any], at: str, errors: SettingsErrors) -> Any:
    if not isinstance(value, dict):
        _wrong(errors, at, "must be an object" if at else "the settings are not an object")
    hints = typing.get_type_hints(into)
    known = {_camel_case(field.name): field for field in fields(into)}
    for name in value:
        if name not in known:
            errors.at(at + pointer(name), "unknown setting; there are: " + ", ".join(sorted(known)))
    for name, field in known.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            errors.at(at + pointer(name), "is missing")
    given = [(name, field) for name, field in known.items() if name in value]
    reads = [partial(_read, value[name], hints[field.name], at + pointer(name), errors) for name, field in given]
    values = _all(reads)
    if errors.errors:
        raise _Wrong
    try:
        return into(**{field.name: one for (_, field), one in zip(given, values, strict=True)})
    except SettingsErrors as own:
        errors.errors += [(at + (setting or "") or None, message) for setting, message in own.errors]
        raise _Wrong from None


def schema(into: type[Any]) -> str:
    """Returns the JSON Schema of the settings, as text. It is for people: the reader decides."""
    return json.dumps(_schema(into, ()), default=str)


def _schema(kind: Any, outer: tuple[Any, ...]) -> dict[str, Any]:
    """Leaves out the members of a dataclass within itself."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, Union):
        one = _schema(next(one for one in of if one is not types.NoneType), outer)
        return {"anyOf": [one, {"type": "null"}]} if types.NoneType in of else one
    if origin is Literal:
        return {"enum": list(of)}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(of[0], outer)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(of[1], outer)}
    if not is_dataclass(kind):
        return {"type": _TYPES[kind]} if kind in _TYPES else {}
    if kind in outer:
        return {"type": "object"}
    hints = typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in fields(kind):
        name, member = _camel_case(field.name), _schema(hints[field.name], (*outer, kind))
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(name)
        elif _is_json(field.default):
            member["default"] = field.default
        properties[name] = member
    words = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **words, "additionalProperties": False}


_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def _is_json(value: Any) -> bool:
    """Whether a default can be shown. NaN and the infinities cannot."""
    if isinstance(value, int | float):
        return abs(value) < float("inf")
    return value is None or isinstance(value, str)


def _all(reads: Sequence[Callable[[], Any]]) -> list[Any]:
    """Reads all values. Fails after the last one if any of them is wrong."""
    values, is_wrong = [], False
    for one in reads:
        try:
            values.append(one())
        except _Wrong:
            is_wrong = True
    if is_wrong:
        raise _Wrong
    return values


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
