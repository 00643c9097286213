"""``tollgate-py build policy.py --output policy.wasm``"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tollgate_sdk import _base, _project, _room
from tollgate_sdk._base import BuildError, Plan

# The sizes of the room for a policy. A policy that grows beyond one is compiled again.
_ROOMS = (256 << 10, 1 << 20, 4 << 20, 16 << 20)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="tollgate-py", description="Makes a Tollgate plugin of a policy module.")
    build_command = parser.add_subparsers(required=True).add_parser("build", help="build a policy module")
    build_command.add_argument("policy", type=Path, help="the module, such as policy.py")
    build_command.add_argument("-o", "--output", type=Path, required=True, help="the component")
    build_command.add_argument(
        "--one-stage", action="store_true", help="import the policy during the build, which takes longer"
    )
    arguments = parser.parse_args()
    try:
        exports = build(arguments.policy, arguments.output, arguments.one_stage)
    except (BuildError, _project.SourceError) as error:
        sys.exit(f"error: {error}")
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes, exports {', '.join(exports)}")


def build(policy: Path, output: Path, one_stage: bool = False) -> list[str]:
    """Builds a policy module, and returns the interfaces that it exports."""
    project = _project.read(policy)
    names = _names(project, policy)
    if "manifest" not in names:
        raise BuildError(f"{policy} has no `manifest`")
    exports = ["lifecycle"]
    exports += [interface for name, interface in (("mutate", "mutating"), ("validate", "validating")) if name in names]
    if len(exports) == 1:
        raise BuildError(f"{policy} has neither `validate` nor `mutate`")
    output.parent.mkdir(parents=True, exist_ok=True)
    chosen = True if one_stage else _chosen_stages(project)
    reason = _reason_for_one_stage(project, chosen)
    if reason or one_stage:
        if not one_stage:
            print(f"importing the policy during this build, and so in each: {reason}", file=sys.stderr)
        component = _in_one_stage(project, policy, exports)
    else:
        # An author who knows better can say so.
        component = _in_two_stages(project, exports, is_sure=chosen is False)
    _base.write(output, component)
    return exports


def _chosen_stages(project: _project.Project) -> bool | None:
    settings = project.root / "pyproject.toml"
    try:
        own = tomllib.loads(settings.read_text()).get("tool", {}).get("tollgate", {})
    except FileNotFoundError:
        own = {}
    except (OSError, ValueError) as error:
        raise BuildError(f"{settings}: {error}") from None
    chosen = own.get("one-stage")
    if chosen is not None and not isinstance(chosen, bool):
        raise BuildError(f"{settings}: `one-stage` under [tool.tollgate] must be true or false")
    return chosen


def _reason_for_one_stage(project: _project.Project, chosen: bool | None) -> str:
    if chosen:
        return "`one-stage` in pyproject.toml"
    if project.needs_files and chosen is None:
        return f"{project.needs_files} may read files, which a plugin does not have when it loads"
    return ""


def _in_two_stages(project: _project.Project, exports: list[str], is_sure: bool) -> bytes:
    """Writes the policy's own modules into a component that has all others."""
    contents = {"module": project.module, "files": project.files, "is_sure": is_sure}
    for size in _ROOMS:
        content = _room.fill(contents, size)
        if content is not None:
            plan = Plan(_capabilities(project.imports), exports, _others(project), sorted(project.stars), room=size)
            base = _base.base(plan)
            for name, place in sorted(project.imports.items()):
                if place and name in base.failed:
                    raise BuildError(f"{place}: cannot import {name}: {base.failed[name]}")
            return base.filled(content)
    raise BuildError(f"the policy's own modules do not fit into {_ROOMS[-1] >> 20} MiB")


def _in_one_stage(project: _project.Project, policy: Path, exports: list[str]) -> bytes:
    """Imports the policy during the build, when there are files."""
    # The policy may import modules by names that it computes.
    anywhere = _project.imported_in(project.root)
    own = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in project.files]
    plan = Plan(_capabilities(anywhere), exports, _others(project), sorted(project.stars), policy, tuple(own))
    return _base.compiled(plan)[0]


def _capabilities(imported: Iterable[str]) -> list[str]:
    return [name for name in _base.CAPABILITIES if f"tollgate_sdk.{name}" in imported]


def _others(project: _project.Project) -> list[str]:
    return sorted({*project.imports} - {*_base.COMMON})


def _names(project: _project.Project, policy: Path) -> set[str]:
    """Returns the names in the policy module."""
    names: set[str] = set()
    source = next(iter(project.files.values()))
    for statement in ast.parse(source, str(policy)).body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(statement.name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names.update((alias.asname or alias.name) for alias in imported)
    return names


if __name__ == "__main__":
    main()
