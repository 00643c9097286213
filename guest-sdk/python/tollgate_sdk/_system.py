"""Replaces Python's functions for time, files and processes. Without this, they would end the call without a text.

While the plugin is being built, all of them work except the time, which would be the time of the build.
"""

from __future__ import annotations

import _io  # type: ignore[import-not-found,unused-ignore]
import builtins
import codecs
import datetime as datetimes
import functools
import io
import os
import posix  # type: ignore[import-not-found,unused-ignore]
import sys
import time
from collections.abc import Callable
from types import BuiltinFunctionType, ModuleType
from typing import Any, NoReturn

_CLOCKS = (
    "clock_getres",
    "clock_gettime",
    "clock_gettime_ns",
    "get_clock_info",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "sleep",
    "thread_time",
    "thread_time_ns",
    "time",
    "time_ns",
)
# The number of arguments with which these functions do not read the clock.
_GIVEN = {"asctime": 1, "ctime": 1, "gmtime": 1, "localtime": 1, "strftime": 2}
# The functions of `posix` that only compute.
_COMPUTES = {"_path_normpath", "_path_splitroot", "_path_splitroot_ex", "device_encoding", "fspath", "getcwd", "getpid", "strerror"}
# Python imports the module of an encoding at its first use, when a plugin can import nothing any more.
_ENCODINGS = (
    "ascii",
    "base64",
    "hex",
    "idna",
    "latin-1",
    "punycode",
    "raw_unicode_escape",
    "unicode_escape",
    "utf-16",
    "utf-16-be",
    "utf-16-le",
    "utf-32",
    "utf-8-sig",
)

_runs = False
missed: list[str] = []
"""What was refused since somebody last looked. A library may have caught the error."""


class NoSystem(OSError):
    """Raised because a plugin has no operating system. An OSError, because libraries handle missing files."""


def withhold() -> None:
    """Withholds the time now, and everything else when the plugin runs."""
    for encoding in _ENCODINGS:
        codecs.lookup(encoding)
    for name in _CLOCKS:
        if hasattr(time, name):
            setattr(time, name, _no_clock)
    for name, given in _GIVEN.items():
        setattr(time, name, _if_given(getattr(time, name), given))
    datetimes.datetime = _Datetime  # type: ignore[misc]
    datetimes.date = _Date  # type: ignore[misc]
    for name, function in list(vars(posix).items()):
        if isinstance(function, BuiltinFunctionType) and name not in _COMPUTES and not name.startswith("W"):
            withheld = _withheld(function, f"os.{name}")
            setattr(posix, name, withheld)
            if getattr(os, name, None) is function:
                setattr(os, name, withheld)
    # The loaders of modules open files through `_io`, to read source lines for a traceback.
    builtins.open = io.open = _io.open = _withheld(open, "open")
    io.open_code = _io.open_code = _withheld(io.open_code, "open_code")
    builtins.input = _withheld(input, "input")


def run() -> None:
    """Marks the end of the build. From now on, the plugin runs."""
    global _runs
    _runs = True


def _no_clock(*_: object) -> int:
    if sys._getframe(1).f_globals.get("__name__") == "logging":
        # Package logging stamps every record, and notes the time of its import.
        return 0
    _refuse_clock()


def _refuse_clock() -> NoReturn:
    raise RuntimeError("a plugin has no clock: use tollgate_sdk.clock, and grant the capability clock")


def _if_given(function: Callable[..., Any], given: int) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if len(arguments) < given or arguments[given - 1] is None:
            _refuse_clock()
        return function(*arguments)

    return call


def _withheld(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if _runs:
            missed.append(name)
            raise NoSystem(f"{name}: a plugin has no files, no processes and no randomness of a system")
        return function(*arguments, **named)

    return call


class _Replacing(type):
    """Makes every date count as a date: a `datetime` is one, and Python's own functions return the replaced types."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _REPLACED.get(cls, ())) or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _REPLACED.get(cls, ())) or super().__subclasscheck__(subclass)


class _Date(datetimes.date, metaclass=_Replacing):
    @classmethod
    def today(cls) -> NoReturn:
        _refuse_clock()


class _Datetime(datetimes.datetime, metaclass=_Replacing):
    @classmethod
    def now(cls, tz: object = None) -> NoReturn:
        _refuse_clock()

    today = utcnow = now


_REPLACED: dict[type, type] = {_Date: datetimes.date, _Datetime: datetimes.datetime}


def route_logging(write: Callable[[str, str], None], streams: Any) -> None:
    """Makes package ``logging`` write to the host's log, if a policy has imported it."""
    logging: ModuleType | None = sys.modules.get("logging")
    if logging is None:
        return

    class ToHost(logging.Handler):  # type: ignore[misc,name-defined]
        def emit(self, record: Any) -> None:
            try:
                write(_level(record.levelno), self.format(record))
            except Exception:
                self.handleError(record)

    root = logging.getLogger()
    root.handlers[:] = [ToHost()]
    for reference in logging._handlerList:
        handler = reference()
        if isinstance(handler, logging.StreamHandler) and handler is not logging.lastResort:
            handler.setStream(streams)


def _level(number: int) -> str:
    """Returns the host's level for a level of ``logging``."""
    return next((name for least, name in ((40, "error"), (30, "warn"), (20, "info"), (10, "debug")) if number >= least), "trace")
