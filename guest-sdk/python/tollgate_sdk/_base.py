"""Runs componentize-py, and keeps its components for policies that differ in their own modules only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tollgate_sdk import _room

SDK = Path(__file__).parent
CONTRACT = "tollgate:admission"
VERSION = "0.1.0"
ENTRY = "tollgate_entry"
CAPABILITIES = ("access", "clock", "cluster", "images")
"""The interfaces outside of the default worlds. A plugin imports one when it imports the SDK's module for it."""
# Also imports the modules. It takes half a minute at most.
_TIMEOUT = 300
_FUNCTIONS = {
    "lifecycle": ["describe(self)", "configure(self, settings)"],
    "mutating": ["mutate(self)"],
    "validating": ["validate(self)"],
}
# Policies import these most. The SDK has most of them anyway, so they cost nothing, and importing one more of them needs no
# other component.
COMMON = (
    "__future__", "collections", "collections.abc", "dataclasses", "datetime", "enum", "functools", "itertools", "json",
    "operator", "re", "string", "tollgate_sdk", "types", "typing",
)  # fmt: skip
_FAILED = "tollgate-failed-import "
_KEPT = 8
_DIGEST = hashlib.sha256().digest_size


class BuildError(Exception):
    """The reason why a build failed."""


@dataclass(frozen=True)
class Plan:
    """What a component is made of, apart from the policy's own modules."""

    capabilities: list[str]
    exports: list[str]
    imports: list[str]
    stars: list[str]
    policy: Path | None = None
    """The policy module, if the build imports it. Otherwise the component has room for it."""
    own: tuple[str, ...] = ()
    """The names of the policy's modules, if the build imports them."""
    room: int = 0

    def entry(self) -> str:
        """Returns the module that componentize-py begins with."""
        lines = [
            "import json, sys",
            "from tollgate_sdk import _component, _room, _system",
            "_system.withhold()",
            *([f"import {self.policy.stem} as _policy"] if self.policy else ["_policy = None"]),
            f"_preloaded = _room.Preloaded({[*COMMON, *self.own, *self.imports]!r}, {self.stars!r})",
            *[f"import wit_world.imports.{name}" for name in self.capabilities],
            "for _name, _error in _preloaded.failed.items():",
            f"    print({_FAILED!r} + json.dumps([_name, f'{{type(_error).__name__}}: {{_error}}']), file=sys.stderr)",
            f"_finder = _room.Finder({f'_room.make({self.room})' if self.room else None}, _preloaded)",
            "_exports = _component.Exports(_policy, _finder)",
        ]
        for interface in self.exports:
            lines.append(f"class {interface.capitalize()}:")
            for function in _FUNCTIONS[interface]:
                call = function.replace("(self, ", "(").replace("(self)", "()")
                lines.append(f"    def {function}: return _exports.{call}")
        return "\n".join(lines) + "\n"

    def key(self) -> str:
        """Returns the name of the component with everything that it depends on."""
        digest = hashlib.sha256()
        parts = [self.entry(), *self.capabilities, version("componentize-py"), sys.version]
        for part in parts:
            digest.update(part.encode() + b"\0")
        for file in sorted([*SDK.glob("*.py"), *SDK.glob("wit/*.wit")]):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        for line in _installed():
            digest.update(line.encode() + b"\0")
        return digest.hexdigest()


def _installed() -> list[str]:
    """Lists the files of all packages, with what changes when pip or an author changes them."""
    lines = []
    for folder in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        for at, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(files):
                status = os.lstat(os.path.join(at, name))
                lines.append(f"{at}/{name} {status.st_size} {status.st_mtime_ns}")
    return lines


def compiled(plan: Plan) -> tuple[bytes, dict[str, str]]:
    """Returns the component of a plan, and the modules that it could not import, with the reasons."""
    with tempfile.TemporaryDirectory(prefix="tollgate-py-") as folder:
        stage = Path(folder)
        _write_world(stage / "wit", ["types", "review", "logging", *plan.capabilities], plan.exports)
        (stage / "entry").mkdir()
        shutil.copytree(SDK, stage / "entry" / "tollgate_sdk", ignore=shutil.ignore_patterns("wit", "__pycache__"))
        (stage / "entry" / f"{ENTRY}.py").write_text(plan.entry())
        sources: list[str | Path] = ["--python-path", plan.policy.parent.resolve()] if plan.policy else []
        command: list[str | Path] = [
            Path(sysconfig.get_path("scripts")) / "componentize-py", "--quiet", "--wit-path", stage / "wit",
            "--world", "plugin", "componentize", ENTRY, *sources, "--python-path", stage / "entry", "--stub-wasi",
            "--output", stage / "component.wasm",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_TIMEOUT, env=_environment()
            )
        except subprocess.TimeoutExpired:
            raise BuildError(
                f"componentize-py was not done after {_TIMEOUT} seconds; "
                f"look for a loop at the top level of {plan.policy or 'the packages'} and of what it imports"
            ) from None
        output = done.stdout + done.stderr
        failed = [line.removeprefix(_FAILED) for line in output.splitlines() if line.startswith(_FAILED)]
        if done.returncode != 0:
            # The rest is the toolchain's own stack.
            said = output.partition("\nCaused by:")[0]
            raise BuildError(f"componentize-py failed:\n{said}".rstrip())
        return (stage / "component.wasm").read_bytes(), dict(json.loads(line) for line in failed)


def _environment() -> dict[str, str]:
    """Returns the variables for componentize-py, which looks for packages in the virtual environment that is active."""
    if sys.prefix == sys.base_prefix:
        return dict(os.environ)
    # The environment of this command, also if the shell has not activated it.
    return {**os.environ, "VIRTUAL_ENV": sys.prefix}


def _write_world(folder: Path, imports: list[str], exports: list[str]) -> None:
    package = folder / "deps" / "tollgate-admission"
    package.mkdir(parents=True)
    for file in (SDK / "wit").glob("*.wit"):
        shutil.copy(file, package)
    lines = [f"  import {CONTRACT}/{name}@{VERSION};" for name in imports]
    lines += [f"  export {CONTRACT}/{name}@{VERSION};" for name in exports]
    body = "\n".join(lines)
    (folder / "world.wit").write_text(f"package tollgate:python;\n\nworld plugin {{\n{body}\n}}\n")


@dataclass(frozen=True)
class Base:
    """A component with room for a policy."""

    component: bytes
    at: int
    """The place of the room in the component."""
    failed: dict[str, str]

    def filled(self, content: bytes) -> bytes:
        """Returns the component with a policy in its room."""
        return self.component[: self.at] + content + self.component[self.at + len(content) :]


def folder() -> Path | None:
    """Returns the folder of kept components. Outside of a virtual environment, componentize-py looks for packages in places
    that this module does not know, so nothing is kept."""
    return None if sys.prefix == sys.base_prefix else Path(sys.prefix) / ".tollgate-cache"


def base(plan: Plan) -> Base:
    """Returns the component for a plan, which is compiled only if it is not kept from an earlier build."""
    kept = folder()
    if kept is None:
        return _compiled_base(plan)
    file = kept / f"{plan.key()}.base"
    found = _read(file)
    if found is None:
        found = _compiled_base(plan)
        _keep(file, found)
    return found


def _compiled_base(plan: Plan) -> Base:
    component, failed = compiled(plan)
    return Base(component, _place_of_room(component, plan.room), failed)


def _place_of_room(component: bytes, size: int) -> int:
    room = bytes(_room.make(size))
    at = component.find(room)
    if at < 0 or component.find(room[:64], at + 64) >= 0:
        raise BuildError("the component of componentize-py has no room for the policy, or more than one")
    return at


def _read(file: Path) -> Base | None:
    """Reads a kept component, unless it is damaged."""
    try:
        content = file.read_bytes()
        digest, content = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            return None
        # The least recently used ones go.
        os.utime(file)
    except OSError:
        return None
    header, _, component = content.partition(b"\n")
    return Base(component, **json.loads(header))


def _keep(file: Path, base: Base) -> None:
    """Keeps a component for the next builds. A full disk costs only their time."""
    content = json.dumps({"at": base.at, "failed": base.failed}).encode() + b"\n" + base.component
    try:
        file.parent.mkdir(exist_ok=True)
        # Builds that were killed may have left parts.
        for part in file.parent.glob(".*"):
            if part.stat().st_mtime < time.time() - 3600:
                part.unlink(missing_ok=True)
        write(file, hashlib.sha256(content).digest() + content)
        kept = sorted(file.parent.glob("*.base"), key=lambda one: one.stat().st_mtime)
        for old in kept[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        print(f"warning: cannot keep the compiled packages in {file.parent}: {error}", file=sys.stderr)


def write(file: Path, content: bytes) -> None:
    """Writes a file as a whole, because another build may read it or write it."""
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as temporary:
        try:
            temporary.write(content)
            temporary.close()
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary.name, 0o666 & ~umask)
            os.replace(temporary.name, file)
        except BaseException:
            os.unlink(temporary.name)
            raise
