"""``tollgate-py build policy.py --output policy.wasm``"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_SDK = Path(__file__).parent
_CONTRACT = "tollgate:admission"
_VERSION = "0.1.0"
_ENTRY = "tollgate_entry"
# The interfaces outside of the default worlds. A plugin imports one when it imports the SDK's module for it.
_CAPABILITIES = ("access", "clock", "cluster", "images")
# Also imports the modules. A build takes half a minute at most.
_TIMEOUT = 300


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="tollgate-py", description="Makes a Tollgate plugin of a policy module.")
    build_command = parser.add_subparsers(required=True).add_parser("build", help="build a policy module")
    build_command.add_argument("policy", type=Path, help="the module, such as policy.py")
    build_command.add_argument("-o", "--output", type=Path, required=True, help="the component")
    arguments = parser.parse_args()
    try:
        exports = build(arguments.policy, arguments.output)
    except BuildError as error:
        sys.exit(f"error: {error}")
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes, exports {', '.join(exports)}")


class BuildError(Exception):
    """The reason why a build failed."""


def build(policy: Path, output: Path) -> list[str]:
    """Builds a policy module, and prints the interfaces that it exports."""
    names, capabilities = _inspect(policy)
    if "manifest" not in names:
        raise BuildError(f"{policy} has no `manifest`")
    exports = ["lifecycle"]
    exports += [interface for name, interface in (("mutate", "mutating"), ("validate", "validating")) if name in names]
    if len(exports) == 1:
        raise BuildError(f"{policy} has neither `validate` nor `mutate`")
    with tempfile.TemporaryDirectory(prefix="tollgate-py-") as folder:
        stage = Path(folder)
        imports = ["types", "review", "logging", *capabilities]
        _write_world(stage / "wit", imports, exports)
        (stage / "entry").mkdir()
        shutil.copytree(_SDK, stage / "entry" / "tollgate_sdk", ignore=shutil.ignore_patterns("wit", "__pycache__"))
        (stage / "entry" / f"{_ENTRY}.py").write_text(_entry(policy.stem, imports, exports))
        output.parent.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [
            Path(sysconfig.get_path("scripts")) / "componentize-py", "--quiet", "--wit-path", stage / "wit",
            "--world", "plugin", "componentize", _ENTRY, "--python-path", policy.parent.resolve(),
            "--python-path", stage / "entry", "--stub-wasi", "--output", output.resolve(),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_TIMEOUT, env=_environment()
            )
        except subprocess.TimeoutExpired:
            raise BuildError(
                f"componentize-py was not done after {_TIMEOUT} seconds; "
                f"look for a loop at the top level of {policy} and of what it imports"
            ) from None
        if done.returncode != 0:
            # The rest is the toolchain's own stack.
            said = (done.stdout + done.stderr).partition("\nCaused by:")[0]
            raise BuildError(f"componentize-py failed:\n{said}".rstrip())
    return exports


def _environment() -> dict[str, str]:
    """Returns the variables for componentize-py, which looks for packages in the virtual environment that is active."""
    if sys.prefix == sys.base_prefix:
        return dict(os.environ)
    # The environment of this command, also if the shell has not activated it.
    return {**os.environ, "VIRTUAL_ENV": sys.prefix}


def _inspect(policy: Path) -> tuple[set[str], list[str]]:
    """Returns the names in a module, and the capabilities that it imports, without running the module."""
    try:
        tree = ast.parse(policy.read_text(), str(policy))
    except (OSError, SyntaxError) as error:
        raise BuildError(str(error)) from None
    names: set[str] = set()
    used: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(statement.name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names.update((alias.asname or alias.name) for alias in imported)
    for file in policy.parent.rglob("*.py"):
        # Not the SDK itself, nor what pip has installed.
        if any(part == _SDK.name or part.startswith(".") for part in file.relative_to(policy.parent).parts):
            continue
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            match node:
                case ast.ImportFrom(module="tollgate_sdk", names=imported):
                    used.update(f"tollgate_sdk.{alias.name}" for alias in imported)
                case ast.ImportFrom(module=str(module)):
                    used.add(module)
                case ast.Import(names=imported):
                    used.update(alias.name for alias in imported)
    return names, [name for name in _CAPABILITIES if f"tollgate_sdk.{name}" in used]


def _write_world(folder: Path, imports: list[str], exports: list[str]) -> None:
    package = folder / "deps" / "tollgate-admission"
    package.mkdir(parents=True)
    for file in (_SDK / "wit").glob("*.wit"):
        shutil.copy(file, package)
    lines = [f"  import {_CONTRACT}/{name}@{_VERSION};" for name in imports]
    lines += [f"  export {_CONTRACT}/{name}@{_VERSION};" for name in exports]
    body = "\n".join(lines)
    (folder / "world.wit").write_text(f"package tollgate:python;\n\nworld plugin {{\n{body}\n}}\n")


def _entry(module: str, imports: list[str], exports: list[str]) -> str:
    functions = {
        "lifecycle": ["describe(self)", "configure(self, settings)"],
        "mutating": ["mutate(self)"],
        "validating": ["validate(self)"],
    }
    lines = [
        "from tollgate_sdk import _component, _system",
        "_system.withhold()",
        f"import {module} as _policy",
        # Modules that are imported later do not exist any more.
        *[f"import wit_world.imports.{name}" for name in imports if name in _CAPABILITIES],
        "_exports = _component.Exports(_policy)",
    ]
    for interface in exports:
        lines.append(f"class {interface.capitalize()}:")
        for function in functions[interface]:
            call = function.replace("(self, ", "(").replace("(self)", "()")
            lines.append(f"    def {function}: return _exports.{call}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
