"""Finds out, without running it, which modules a policy consists of and what it needs when it loads."""

from __future__ import annotations

import ast
import importlib.util
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path

_SDK = "tollgate_sdk"

# Code that mentions these while a policy loads is most likely in need of files, which exist only during the build.
_OF_FILES = {
    "__file__", "exists", "get_data", "glob", "is_dir", "is_file", "iterdir", "listdir", "open", "read_bytes", "read_text",
    "scandir", "walk",
}  # fmt: skip
# Modules that read files, or the randomness of a system.
_NEEDY = {"glob", "importlib.resources", "pkgutil", "secrets", "tempfile", "zipfile", "zoneinfo"}
_OF_RANDOMNESS = {"Random", "SystemRandom", "getrandbits", "urandom", "uuid1", "uuid4"}
_IMPORTING = {"__import__", "import_module"}
# Python imports these modules at the first use of a function.
_LAZY = {"strptime": "_strptime"}

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class SourceError(Exception):
    """A module that cannot be read, with its file and line."""


@dataclass
class Project:
    """The modules of a policy."""

    root: Path
    """The folder that the names of its modules start in."""
    module: str
    """The name of the policy module."""
    files: dict[str, str] = field(default_factory=dict)
    """The source of each module that the policy imports, by its path in the folder."""
    imports: dict[str, str] = field(default_factory=dict)
    """The modules of others. The value is the place that cannot do without the module, or empty."""
    stars: set[str] = field(default_factory=set)
    """The modules of others from which it imports everything."""
    needs_files: str = ""
    """The place where the policy reads files while it loads, and what it mentions there. Empty without one."""


def read(policy: Path) -> Project:
    """Reads a policy module and the modules of its folder that it imports."""
    project = Project(policy.resolve().parent, policy.stem)
    trees: dict[str, ast.Module] = {}
    if not _add(project, project.module, trees):
        raise SourceError(f"{policy}: no such module")
    _look_for_files(project, trees)
    return project


def imported_in(folder: Path) -> set[str]:
    """Lists what the modules in a folder import, also those that the policy does not seem to import."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        # Not the SDK itself, nor what pip has installed.
        if any(part == _SDK or part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        for one in _imports(_parsed(file, file.relative_to(folder).as_posix())[1], ""):
            found |= {one.module, f"{one.module}.{one.member}"}
    return found


def _parsed(file: Path, key: str) -> tuple[str, ast.Module]:
    try:
        with tokenize.open(file) as opened:
            source = opened.read()
        return source, ast.parse(source, key)
    except SyntaxError as error:
        raise SourceError(f"{key}:{error.lineno}: {type(error).__name__}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{key}: {error}") from None


def _add(project: Project, name: str, trees: dict[str, ast.Module]) -> bool:
    """Adds a module with everything that it imports. Returns whether the project has the module."""
    path = project.root.joinpath(*name.split("."))
    file = next((file for file in (path / "__init__.py", path.with_name(f"{path.name}.py")) if file.is_file()), None)
    if name.partition(".")[0] == _SDK:
        return False
    if file is None:
        # A folder without a module for itself. A package of this name that is installed goes first.
        return path.is_dir() and any(path.glob("*.py")) and ("." in name or _installed(name) is None)
    key = file.relative_to(project.root).as_posix()
    if key in project.files:
        return True
    project.files[key], trees[key] = _parsed(file, key)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for found in _imports(trees[key], package):
        _follow(project, found, key, trees)
    return True


def _installed(name: str) -> ModuleSpec | None:
    """Finds a package or a module of Python by a name without dots, without importing it."""
    try:
        return importlib.util.find_spec(name)
    except ValueError:
        return None


def _is_module(package: str, member: str) -> bool:
    """Whether a name in a package of others is a module, which has to be imported."""
    top, *below = package.split(".")
    spec = _installed(top)
    for folder in (spec and spec.submodule_search_locations) or []:
        path = Path(folder, *below, member)
        if path.with_name(f"{member}.py").is_file() or path.is_dir():
            return True
    return False


@dataclass
class _Import:
    module: str
    member: str | None
    line: int
    is_needed: bool


def _follow(project: Project, found: _Import, key: str, trees: dict[str, ast.Module]) -> None:
    parts = found.module.split(".")
    if not _add(project, parts[0], trees):
        place = f"{key}:{found.line}" if found.is_needed else ""
        project.imports[found.module] = project.imports.get(found.module) or place
        if found.member == "*":
            project.stars.add(found.module)
        elif found.member is not None and _is_module(found.module, found.member):
            project.imports.setdefault(f"{found.module}.{found.member}", "")
        return
    for end in range(1, len(parts)):
        _add(project, ".".join(parts[: end + 1]), trees)
    if found.member is not None and found.member != "*":
        _add(project, f"{found.module}.{found.member}", trees)


def _imports(tree: ast.AST, package: str, is_needed: bool = True) -> Iterator[_Import]:
    """Lists all imports, also those in functions. A module is needed unless something decides at load to import it."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield _Import(alias.name, None, node.lineno, is_needed)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                name = ".".join([part for part in base if part] + ([module] if module else []))
                for alias in names:
                    if name:
                        yield _Import(name, alias.name, node.lineno, is_needed)
                    else:
                        # `from . import x` beside the policy.
                        yield _Import(alias.name, None, node.lineno, is_needed)
            case ast.Call() if name := _imported(node, package):
                yield _Import(name, None, node.lineno, False)
                yield from _imports(node, package, False)
            case ast.Attribute(attr=attribute) if attribute in _LAZY:
                yield _Import(_LAZY[attribute], None, node.lineno, False)
                yield from _imports(node, package, is_needed)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=orelse):
                yield from _imports(ast.Module(orelse, []), package, is_needed)
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While() | ast.Match() | ast.Lambda():
                yield from _imports(node, package, False)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(node, package, False)
            case _:
                yield from _imports(node, package, is_needed)


def _imported(call: ast.Call, package: str) -> str:
    """Returns the module that a call such as `import_module(".rules", __package__)` in a package imports. Empty for any other
    call, and if only the running code knows the name."""
    if _name(call.func) not in _IMPORTING:
        return ""
    match call.args:
        case [ast.Constant(value=str(name)), *others]:
            level = len(name) - len(name.lstrip("."))
            if not level:
                return name
            named = [keyword.value for keyword in call.keywords if keyword.arg == "package"]
            match [*others, *named]:
                case [ast.Constant(value=str(written)), *_]:
                    package = written
                case [ast.Name(id="__package__"), *_]:
                    pass
                case _:
                    return ""
            base = package.split(".")
            return ".".join(part for part in (*base[: len(base) - level + 1], name[level:]) if part)
    return ""


def _look_for_files(project: Project, trees: dict[str, ast.Module]) -> None:
    """Notes the first place that needs files while the policy loads: at the top level, or in what it calls there."""
    functions: dict[str, list[tuple[str, ast.AST]]] = {}
    for key, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                functions.setdefault(node.name, []).append((key, node))
    pending: list[tuple[str, ast.AST]] = [*trees.items()]
    # Python calls these by itself.
    for name in [name for name in functions if name.startswith("__")]:
        pending += functions.pop(name)
    while pending:
        key, code = pending.pop(0)
        for node in _at_load(code):
            needed = _needed(node)
            if needed:
                project.needs_files = f"{key}:{getattr(node, 'lineno', 1)}: {needed}"
                return
            pending += functions.pop(_name(node), [])


def _at_load(tree: ast.AST) -> Iterator[ast.AST]:
    """Walks through what runs, without the bodies of the functions in it."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, _FUNCTIONS):
            for part in (*node.decorator_list, node.args):
                yield from _at_load(part)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            yield from _at_load(node)


def _name(function: ast.AST) -> str:
    """Returns the last part of a name, or nothing for anything else."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _needed(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _OF_FILES:
            return name
        case ast.Call(func=function) if _name(function) in _OF_RANDOMNESS:
            return _name(function)
        case ast.Call(func=function) if _name(function) in _IMPORTING:
            return "" if _imported(node, "any") else _name(function)
        case ast.Import(names=names):
            return next((alias.name for alias in names if alias.name in _NEEDY), "")
        case ast.ImportFrom(module=str(module), names=names):
            of_module = [module, *(f"{module}.{alias.name}" for alias in names)]
            return next((name for name in of_module if name in _NEEDY), "")
    return ""
