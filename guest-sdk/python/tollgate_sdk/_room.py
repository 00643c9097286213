"""The policy's own modules inside the component: the build writes them, and the plugin imports them when it loads."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

from tollgate_sdk import _system

FOLDER = "/policy/"
"""The folder that the policy's modules seem to be in."""
ONE_STAGE = "`one-stage = true` under [tool.tollgate] in pyproject.toml"
_HEADER = 8
_BLOCK = 32


def make(size: int) -> bytearray:
    """Makes room that no other place in a component looks like. Its bytes are not compressed, and have no zeros."""
    room = bytearray(size)
    # In its place, because memory that was given back still has a copy.
    for start in range(0, size, _BLOCK):
        room[start : start + _BLOCK] = b"tollgate-room-%017d\n" % start
    return room


def fill(project: Mapping[str, object], size: int) -> bytes | None:
    """Returns the contents of the room for a policy, or None if it does not fit."""
    content = json.dumps(project, sort_keys=True).encode()
    if len(content) + _HEADER > size:
        return None
    return (len(content).to_bytes(_HEADER, "little") + content).ljust(size, b"\0")


class Preloaded:
    """The modules of others, imported during the build."""

    def __init__(self, imports: list[str], stars: list[str]) -> None:
        self.failed: dict[str, BaseException] = {}
        for name in imports:
            self._import(name)
        for name in stars:
            module = sys.modules.get(name)
            for member in getattr(module, "__all__", ()):
                if not hasattr(module, member):
                    self._import(f"{name}.{member}")

    def _import(self, name: str) -> None:
        try:
            importlib.import_module(name)
        except BaseException as error:
            self.failed[name] = error.with_traceback(None)
            error.__context__ = None


class Finder:
    """Imports the policy's modules, and says of all others that it is too late for them."""

    def __init__(self, room: bytearray | None, preloaded: Preloaded) -> None:
        self._preloaded = preloaded
        self._room = room
        self._files: dict[str, str] = {}
        self._folders: set[str] = set()
        self.is_loading = False

    def load(self) -> ModuleType:
        """Imports the policy from the room, and gives the room back."""
        room = self._room or bytearray(_HEADER)
        self._room = None
        length = int.from_bytes(room[:_HEADER], "little")
        if not 0 < length <= len(room) - _HEADER:
            raise RuntimeError("this component has no policy: tollgate-py did not finish it")
        project = json.loads(bytes(room[_HEADER : _HEADER + length]))
        room.clear()
        self._files = project["files"]
        for file in self._files:
            while file := file.rpartition("/")[0]:
                self._folders.add(file)
        for name in self._files:
            # A module of the same name that a package imported during the build.
            top = name.partition("/")[0].removesuffix(".py")
            if top in sys.modules and top not in sys.stdlib_module_names:
                for old in [old for old in sys.modules if old == top or old.startswith(f"{top}.")]:
                    del sys.modules[old]
        self.is_loading = True
        _system.missed.clear()
        try:
            module = importlib.import_module(project["module"])
        finally:
            self.is_loading = False
        # Whoever caught the error may go on without what it wanted to read, such as a list of what to deny.
        if _system.missed and not project.get("is_sure"):
            raise RuntimeError(
                f"{_system.missed[0]}: the top level needs it, and a plugin does not have it when it loads; it has it with "
                f"{ONE_STAGE}, and `one-stage = false` there says that nothing needs it"
            )
        return module

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Finds a module for Python."""
        path = name.replace(".", "/")
        for file in (f"{path}/__init__.py", f"{path}.py"):
            if file in self._files:
                loader = _Loader(self._files[file])
                is_package = file.endswith("__init__.py")
                spec = ModuleSpec(name, loader, origin=FOLDER + file, is_package=is_package)  # type: ignore[arg-type]
                spec.has_location = True
                if spec.submodule_search_locations is not None:
                    spec.submodule_search_locations.append(FOLDER + path)
                return spec
        if path in self._folders:
            return ModuleSpec(name, None, is_package=True)
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        failed = self._preloaded.failed.get(name)
        if failed is not None:
            raise failed
        if self.is_loading:
            _system.missed.append(f"import {name}")
            raise ModuleNotFoundError(
                f"{name} is imported while the plugin loads, when there are no files: write `import {name}` in your "
                f"own code, or set {ONE_STAGE}",
                name=name,
            )
        raise ImportError(f"{name} is imported while the plugin runs, when there are no files: import it at the top")


class _Loader:
    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, _: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(module.__file__), "exec", dont_inherit=True), vars(module))

    def get_source(self, _: str) -> str:
        return self._source
