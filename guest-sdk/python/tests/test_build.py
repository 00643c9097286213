"""What the build makes of a policy, and how the plugin imports it, without componentize-py."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import sysconfig
import types
import tempfile
import traceback
import unittest
from pathlib import Path
from unittest import mock

from tollgate_sdk import _base, _project, _room, _system, build

POLICY = """\
from tollgate_sdk import ALLOW, Manifest
manifest = Manifest("test", "1.0.0")
def validate(review, settings):
    return ALLOW
"""


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)

    def write(self, **files: str) -> Path:
        """Writes modules. Two underscores separate folders."""
        for name, source in {"policy": POLICY, **files}.items():
            file = self.folder / f"{name.replace('__', '/').replace('/init/', '/__init__')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        return self.folder / "policy.py"


class Projects(Folder):
    """The modules that a policy consists of."""

    def read(self, **files: str) -> _project.Project:
        return _project.read(self.write(**files))

    def test_modules_of_the_project_are_found_through_its_imports(self) -> None:
        project = self.read(
            policy="import a\nfrom b import c, name\nimport yaml\ndef f():\n    import b.d\n",
            a="",
            b__init__="",
            b__c="from . import e\nfrom .f import x\nfrom ..a import y",
            b__d="",
            b__e="",
            b__f="",
            test_policy="import unittest",
        )
        self.assertEqual(
            sorted(project.files), ["a.py", "b/__init__.py", "b/c.py", "b/d.py", "b/e.py", "b/f.py", "policy.py"]
        )
        self.assertEqual(project.imports, {"yaml": "policy.py:3"})

    def test_a_module_of_others_is_needed_only_if_nothing_decides_about_it(self) -> None:
        project = self.read(
            policy="""\
from __future__ import annotations
from typing import TYPE_CHECKING
import json, a.b
from xml import etree
from re import compile
if TYPE_CHECKING:
    import only_types
try:
    import fast
except ImportError:
    import slow
def f():
    import statistics
    return datetime.strptime("1", "%d")
import importlib
importlib.import_module("named")
"""
        )
        self.assertEqual(
            project.imports,
            {
                "__future__": "policy.py:1", "typing": "policy.py:2", "json": "policy.py:3", "a.b": "policy.py:3",
                "xml": "policy.py:4", "xml.etree": "", "re": "policy.py:5", "fast": "", "slow": "", "statistics": "",
                "_strptime": "", "importlib": "policy.py:15", "named": "",
            },
        )  # fmt: skip

    def test_a_relative_name_in_a_call_is_resolved(self) -> None:
        project = self.read(
            policy="""\
from importlib import import_module
import rules
def f():
    import_module(".a", "rules")
    import_module("..b", package="rules.deep")
    import_module("." + name, "rules")
""",
            rules__init__="import importlib\nimportlib.import_module('.c', __package__)",
            rules__a="",
            rules__b="",
            rules__c="",
            rules__d="",
        )
        self.assertEqual(sorted(project.files), ["policy.py", "rules/__init__.py", "rules/a.py", "rules/b.py", "rules/c.py"])

    def test_a_mistake_in_the_syntax_has_a_place(self) -> None:
        with self.assertRaisesRegex(_project.SourceError, r"^a.py:2: SyntaxError: "):
            self.read(policy="import a", a="x = 1\ndef = 2\n")

    def test_reading_files_while_loading_is_noticed(self) -> None:
        for source, place in (
            ("text = open('a').read()", "policy.py:1: open"),
            ("from pathlib import Path\nhere = Path(__file__)", "policy.py:2: __file__"),
            ("import pkgutil", "policy.py:1: pkgutil"),
            ("from importlib import resources", "policy.py:1: importlib.resources"),
            ("def load():\n    return open('a')\nclass A:\n    x = load()", "policy.py:2: open"),
            ("class A:\n    def __init__(self):\n        open('a')", "policy.py:3: open"),
            ("import random\nchance = random.Random(5)", "policy.py:2: Random"),
            ("import importlib\nfor name in 'ab':\n    importlib.import_module(name)", "policy.py:3: import_module"),
            ("import importlib\nimportlib.import_module('.a', name())", "policy.py:2: import_module"),
            ("import importlib\nimportlib.import_module('.a', package='rules')", ""),
            ("import importlib\nimportlib.import_module('.a', __package__)", ""),
            ("def validate():\n    open('a')\n    import_module(x)", ""),
            (POLICY, ""),
        ):
            self.assertEqual(self.read(policy=source).needs_files, place, source)


class Builds(Folder):
    """Components, with a compiler that only writes down the plan."""

    def setUp(self) -> None:
        super().setUp()
        self.compiled: list[_base.Plan] = []
        self.failed: dict[str, str] = {}
        kept = self.folder / "kept"
        kept.mkdir()
        for name, value in (("folder", lambda: kept), ("compiled", self.compile)):
            patch = mock.patch.object(_base, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def compile(self, plan: _base.Plan) -> tuple[bytes, dict[str, str]]:
        self.compiled.append(plan)
        return b"before" + _room.make(plan.room) + b"after", self.failed

    def build(self, **files: str) -> bytes:
        policy = self.write(**files)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            build.build(policy, self.folder / "out" / "policy.wasm")
        self.said = said.getvalue()
        return (self.folder / "out" / "policy.wasm").read_bytes()

    def kept(self) -> list[Path]:
        return sorted((self.folder / "kept").iterdir())

    def test_a_changed_policy_changes_only_the_room(self) -> None:
        one = self.build(helper="x = 1")
        other = self.build(policy=POLICY + "import json, helper\n", helper="x = 2")
        self.assertEqual(len(self.compiled), 1)
        self.assertEqual(len(one), len(other))
        self.assertNotEqual(one, other)
        for component in (one, other):
            self.assertTrue(component.startswith(b"before") and component.endswith(b"after"))
            self.assertNotIn(b"tollgate-room", component)
        self.assertEqual(self.build(helper="x = 1"), one)

    def test_everything_else_is_compiled_again(self) -> None:
        self.build()
        self.build(policy=POLICY + "import statistics\n")
        self.build(policy=POLICY + "def mutate(review, settings): ...\n")
        self.build(policy=POLICY + "from tollgate_sdk import clock\n")
        with mock.patch.object(_base, "version", lambda _: "99"):
            self.build()
        with mock.patch.object(_base, "_installed", lambda: ["another file"]):
            self.build()
        self.assertEqual(len(self.compiled), 6)
        self.assertEqual([plan.capabilities for plan in self.compiled][3], ["clock"])
        # The SDK is not always in a folder of `sys.path`.
        elsewhere = [folder for folder in sys.path if Path(folder).resolve() != _base.SDK.parent]
        with mock.patch.object(sys, "path", elsewhere):
            self.build(policy=POLICY + "from tollgate_sdk import clock\n")
        self.assertEqual(self.compiled[1].imports, ["statistics"])

    def test_an_installed_package_that_changes_is_compiled_again(self) -> None:
        packages = self.folder / "packages"
        module = packages / "rules" / "__init__.py"
        module.parent.mkdir(parents=True)
        (module.parent / "__pycache__").mkdir()
        module.write_text("LIMIT = 1")
        steps = (
            lambda: None,
            lambda: (module.parent / "__pycache__" / "x.pyc").write_text(""),
            lambda: module.write_text("LIMIT = 20"),
            # As pip does, with the same size.
            lambda: os.utime(module, (1, 1)),
            lambda: (module.parent / "more.py").write_text(""),
            lambda: (module.parent / "more.py").unlink(),
        )
        compiled = []
        with mock.patch.object(sysconfig, "get_path", lambda _: str(packages)):
            for step in steps:
                step()
                self.build()
                compiled.append(len(self.compiled))
        # Without the last module, the packages are those of the step before it was added.
        self.assertEqual(compiled, [1, 1, 2, 3, 4, 4])

    def test_a_policy_that_is_too_large_gets_more_room(self) -> None:
        rooms = [len(self.build(policy=POLICY + "#" * size)) for size in (0, 300_000, 1_200_000)]
        self.assertEqual(rooms, [(size << 10) + 11 for size in (256, 1024, 4096)])
        with self.assertRaisesRegex(_base.BuildError, "do not fit into 16 MiB"):
            self.build(policy=POLICY + "#" * (16 << 20))

    def test_a_damaged_entry_is_compiled_again(self) -> None:
        whole = self.build()
        [entry] = self.kept()
        content = entry.read_bytes()
        for damaged in (content[: len(content) // 2], b"", content[:-1] + b"?", content[:40] + b"?" + content[41:]):
            entry.write_bytes(damaged)
            self.assertEqual(self.build(), whole)
            self.assertEqual(entry.read_bytes(), content)
        self.assertEqual(len(self.compiled), 5)

    def test_the_least_recently_used_entries_go(self) -> None:
        self.build()
        [first] = self.kept()
        part = first.parent / ".part.base.x"
        part.write_bytes(b"")
        for module in ("abc", "ast", "bisect", "calendar", "cmath", "code", "codecs", "colorsys", "copy"):
            for entry in first.parent.iterdir():
                os.utime(entry, (entry.stat().st_mtime - 10_000,) * 2)
            self.build()
            self.build(policy=POLICY + f"import {module}\n")
        self.assertEqual(len(self.kept()), _base._KEPT)
        self.assertIn(first, self.kept())
        self.assertEqual(len(self.compiled), 10)

    def test_no_room_or_two_are_refused(self) -> None:
        for component in (b"nothing", bytes(_room.make(256 << 10)) * 2):
            with mock.patch.object(_base, "compiled", lambda _, component=component: (component, {})):
                with self.assertRaisesRegex(_base.BuildError, "no room for the policy, or more than one"):
                    self.build()
        self.assertEqual(self.kept(), [])

    def test_a_module_that_is_missing_is_named_with_its_place(self) -> None:
        self.failed = {"yamll": "ModuleNotFoundError: No module named 'yamll'"}
        with self.assertRaisesRegex(_base.BuildError, "^policy.py:5: cannot import yamll: ModuleNotFoundError: No mod"):
            self.build(policy=POLICY + "import yamll\n")
        self.build(policy=POLICY + "try:\n    import yamll\nexcept ImportError: ...\n")

    def test_a_policy_that_reads_files_is_imported_during_the_build(self) -> None:
        source = POLICY + "text = open('a').read()\ndef late():\n    import statistics, helper\n"
        self.assertTrue(self.build(policy=source, helper="", other="from tollgate_sdk import clock"))
        self.assertIn("policy.py:5: open may read files", self.said)
        [plan] = self.compiled
        self.assertEqual((plan.policy, plan.room), (self.folder / "policy.py", 0))
        self.assertEqual((plan.own, plan.imports, plan.capabilities), (("policy", "helper"), ["statistics"], ["clock"]))
        self.assertEqual(self.kept(), [])
        settings = self.folder / "pyproject.toml"
        for chosen, rooms in (("true", [0]), ("false", [256 << 10])):
            self.compiled.clear()
            settings.write_text(f"[tool.tollgate]\none-stage = {chosen}\n")
            self.build(policy=source if rooms[0] else POLICY)
            self.assertEqual([plan.room for plan in self.compiled], rooms)
        settings.write_text("[tool.tollgate]\none-stage = 1\n")
        with self.assertRaisesRegex(_base.BuildError, "`one-stage` under .tool.tollgate. must be true or false"):
            self.build()


class Rooms(unittest.TestCase):
    """Importing a policy from its room."""

    def setUp(self) -> None:
        patches = (mock.patch.dict(sys.modules), mock.patch.object(sys, "meta_path", list(sys.meta_path)))
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def finder(self, files: dict[str, str], imports: tuple[str, ...] = (), is_sure: bool = False) -> _room.Finder:
        content = _room.fill({"module": "tested", "files": files, "is_sure": is_sure}, 64 << 10)
        assert content is not None
        finder = _room.Finder(bytearray(content), _room.Preloaded([*imports], []))
        sys.meta_path[:] = [finder]
        return finder

    def test_packages_and_late_imports_work(self) -> None:
        module = self.finder(
            {
                "tested.py": "from inner import a\nimport space.b\ndef late():\n    from inner import c\n    return c.x",
                "inner/__init__.py": "",
                "inner/a.py": "from . import d\nx = d.x",
                "inner/c.py": "x = 'c'",
                "inner/d.py": "x = 'd'",
                "space/b.py": "x = 'b'",
            }
        ).load()
        self.assertEqual((module.a.x, module.space.b.x, module.late()), ("d", "b", "c"))
        self.assertEqual(module.__file__, "/policy/tested.py")
        self.assertEqual(module.a.__package__, "inner")

    def test_exceptions_have_file_and_line(self) -> None:
        finder = self.finder({"tested.py": "import below\n", "below.py": "\n\n1 / 0\n"})
        try:
            finder.load()
        except ZeroDivisionError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
        self.assertEqual((frame.filename, frame.lineno, frame.line), ("/policy/below.py", 3, "1 / 0"))

    def test_modules_of_others_fail_as_they_did_during_the_build(self) -> None:
        imports = ("json", "no_such_module")
        finder = self.finder({"tested.py": "try:\n    import no_such_module\nexcept ImportError as e:\n    said = str(e)"}, imports)
        self.assertEqual(finder.load().said, "No module named 'no_such_module'")
        with self.assertRaisesRegex(ImportError, "other is imported while the plugin runs.* import it at the top"):
            importlib.import_module("other")
        finder = self.finder({"tested.py": "import other"})
        with self.assertRaisesRegex(ImportError, "while the plugin loads.*write `import other`.*one-stage"):
            finder.load()

    def test_what_was_refused_fails_the_load_even_if_the_error_is_caught(self) -> None:
        """A library that goes on without its file could leave a list of what to deny empty."""
        read = _system._withheld(open, "open")
        sys.modules["tested_rules"] = types.SimpleNamespace(read=read)  # type: ignore[assignment]
        caught = "import tested_rules\ntry:\n    tested_rules.read('rules.ini')\nexcept OSError:\n    rules = []"
        late = "try:\n    import late.part\nexcept ImportError:\n    pass"
        with mock.patch.object(_system, "_runs", True):
            for source, expected in ((caught, "open: the top level needs it.*one-stage"), (late, "import late")):
                with self.assertRaisesRegex(RuntimeError, expected):
                    self.finder({"tested.py": source}).load()
                self.finder({"tested.py": source}, is_sure=True).load()
        self.finder({"tested.py": "x = 1"}).load()

    def test_a_module_of_the_policy_goes_before_a_package(self) -> None:
        sys.modules["tested_other"] = sys.modules["unittest"]
        module = self.finder({"tested.py": "import tested_other", "tested_other.py": "x = 1"}).load()
        self.assertEqual(module.tested_other.x, 1)

    def test_an_empty_room_is_no_policy(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "no policy: tollgate-py did not finish"):
            _room.Finder(_room.make(64), _room.Preloaded([], [])).load()


if __name__ == "__main__":
    unittest.main()
