"""Policies like those of plugin authors, run on test reviews."""

from __future__ import annotations

import json
import traceback
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

from tollgate_sdk import (
    ALLOW,
    UNCHANGED,
    Container,
    Denial,
    Document,
    Manifest,
    Mutation,
    Patch,
    Review,
    SettingsErrors,
    access,
    clock,
    cluster,
    images,
    merge,
    pointer,
    whole_object,
)
from tollgate_sdk import _host, _settings
from tollgate_sdk._patch import PatchOperation, Whole
from tollgate_sdk.testing import TestReview, create, delete, update

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"a/b": "", "c~d": ""}, "annotations": None},
    "spec": {
        "big": 9007199254740993,
        "huge": 2**64,
        "half": 0.5,
        "off": False,
        "containers": [{"image": "x"}, {}, {"image": "y"}],
    },
}


def policy(**members: Any) -> ModuleType:
    module = ModuleType("policy")
    vars(module).update(manifest=Manifest("test", "1.0.0"), **members)
    return module


def read(look: Callable[[Document], Any]) -> Any:
    seen = []

    def validate(review: Review, _: Any) -> Any:
        seen.append(look(review.object))
        return ALLOW

    create(POD).validate(policy(validate=validate))
    return seen[0]


@dataclass(frozen=True)
class Limit:
    most: int
    teams: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    max_replicas: int = 10
    mode: Literal["a", "b"] = "a"
    limits: dict[str, Limit] = field(default_factory=dict)
    note: str | None = None

    def __post_init__(self) -> None:
        if self.max_replicas < 1:
            raise SettingsErrors().at("/maxReplicas", "must be at least 1")


class Policies(unittest.TestCase):
    def test_a_value_is_read_as_what_it_is_and_as_nothing_else(self) -> None:
        self.assertEqual(read(lambda at: at.get("/spec/big")), 9007199254740993)
        self.assertIsInstance(read(lambda at: at.get("/spec/huge")), float)
        self.assertIsNone(read(lambda at: at.integer("/spec/half")))
        self.assertEqual(read(lambda at: at.number("/spec/half")), 0.5)
        self.assertIs(read(lambda at: at.boolean("/spec/off")), False)
        self.assertIsNone(read(lambda at: at.integer("/spec/off")))
        self.assertIsNone(read(lambda at: at.get("/metadata/annotations")))
        self.assertTrue(read(lambda at: at.has("/metadata/annotations")))
        self.assertFalse(read(lambda at: at.has("/metadata/nothing")))
        self.assertEqual(read(lambda at: at.get("/spec/containers")), Container("array", 3))
        self.assertIsNone(read(lambda at: at.get("/spec/containers/00")))
        self.assertEqual(read(lambda at: at.keys("/metadata/labels")), ["a/b", "c~d"])

    def test_a_pattern_selects_every_place_that_is_there(self) -> None:
        def places(pattern: str) -> Any:
            return read(lambda at: [node.pointer for node in at.select(pattern)])

        self.assertEqual(places("/spec/containers/*/image"), ["/spec/containers/0/image", "/spec/containers/2/image"])
        self.assertEqual(places("/metadata/labels/*"), ["/metadata/labels/a~1b", "/metadata/labels/c~0d"])

    def test_a_malformed_pointer_ends_every_read_and_patch_at_the_authors_line(self) -> None:
        said = "`spec/replicas` is no JSON Pointer: it has no leading slash; write `/spec/replicas`"
        uses: tuple[Callable[[Document], Any], ...] = (
            lambda at: at.has("spec/replicas"),
            lambda at: at.get("spec/replicas"),
            lambda at: at.get_many(["/spec", "spec/replicas"]),
            lambda at: at.text("spec/replicas"),
            lambda at: at.integer("spec/replicas"),
            lambda at: at.keys("spec/replicas"),
            lambda at: at.select("spec/replicas"),
            lambda at: at.json("spec/replicas"),
            lambda at: at.read("spec/replicas"),
            lambda _: Patch().add("spec/replicas", 1),
            lambda _: Patch().remove("spec/replicas"),
            lambda _: Patch().move("spec/replicas", "/a"),
            lambda _: Patch().copy("/a", "spec/replicas"),
            lambda at: Patch().set(at, "spec/replicas", 1),
            lambda at: Patch().append(at, "spec/replicas", 1),
        )
        for use in uses:
            try:
                read(use)
            except ValueError as error:
                self.assertEqual(str(error), said)
                frames = traceback.extract_tb(error.__traceback__)
            else:
                self.fail("the pointer was accepted")
            lines = [frame.lineno for frame in frames if frame.name == "<lambda>"]
            self.assertEqual(lines[-1:], [use.__code__.co_firstlineno])

    def test_a_malformed_escape_is_explained(self) -> None:
        for malformed in ("/a~", "/a~2", "/~0~b"):
            with self.assertRaises(ValueError) as caught:
                read(lambda at, malformed=malformed: at.get(malformed))  # type: ignore[misc]
            self.assertEqual(
                str(caught.exception),
                f"`{malformed}` is no JSON Pointer: a `~` is followed by neither 0 nor 1; "
                "write `~0` for `~` and `~1` for `/`, or make it with pointer(…)",
            )
        for good in ("", "/", "/~0~1", pointer("~2", "a/b")):
            read(lambda at, good=good: at.get(good))  # type: ignore[misc]

    def test_the_host_is_told_before_anything_can_catch_the_error(self) -> None:
        class Aborting:
            def __init__(self) -> None:
                self.said: list[str] = []

            def abort(self, error: Exception) -> None:
                self.said.append(str(error))

        host: Any = Aborting()
        before = _host.use(host)
        try:
            with self.assertRaises(ValueError):
                Patch().remove("spec")
        finally:
            _host.use(before)
        self.assertEqual(host.said, ["`spec` is no JSON Pointer: it has no leading slash; write `/spec`"])

    def test_a_denial_is_returned_or_raised_and_blames_its_fields(self) -> None:
        blamed = Denial("no").at(pointer("spec", "a/b"), "because")

        def raises(*_: Any) -> Any:
            raise blamed

        for validate in (raises, lambda *_: blamed, lambda *_: blamed.if_blamed()):
            outcome = create(POD).validate(policy(validate=validate))
            self.assertEqual(outcome.causes, [("/spec/a~1b", "because")])
        self.assertIsNone(create(POD).validate(policy(validate=lambda *_: Denial("no").if_blamed())).denial)

    def test_what_is_no_verdict_is_a_fault_and_never_an_allow(self) -> None:
        async def promised(*_: Any) -> Any:
            return ALLOW

        for validate, said in (
            (lambda *_: None, "validate returned None; it has to return ALLOW or a Denial"),
            (lambda *_: True, "returned a bool"),
            (lambda *_: {}, "returned a dict"),
            (lambda *_: UNCHANGED, "returned a Whole"),
            (promised, "nothing in a plugin can be awaited"),
        ):
            with self.assertRaisesRegex(TypeError, said):
                create(POD).validate(policy(validate=validate))
        with self.assertRaisesRegex(TypeError, "mutate returned a list"):
            create(POD).mutate(policy(mutate=lambda *_: []))

    def test_what_the_contract_has_no_form_for_is_named(self) -> None:
        wrong: Any = None
        for make, said in (
            (lambda _: Denial(wrong), "the message of a denial is not a string but None"),
            (lambda _: Denial("no", code="abc"), "the code of a denial is a str; it has to be a whole number from 400"),  # type: ignore[arg-type]
            (lambda _: Denial("no", code=70000), "is 70000"),
            (lambda _: Denial("no", code=True), "is True"),
            (lambda _: Denial("no", reason=5), "the reason of a denial is not a string but a int"),  # type: ignore[arg-type]
            (lambda _: Denial("no").at(5, "m"), "the field of a cause is not a string"),  # type: ignore[arg-type]
            (lambda _: Denial("no").at("/a", wrong), "the message of a cause is not a string but None"),
            (lambda review: review.object.get(wrong), "a pointer into the review is not a string but None"),
            (lambda review: review.object.select(5), "a pointer into the review is not a string but a int"),
            (lambda review: review.warn(5), "a warning is not a string but a int"),
            (lambda review: review.annotate(5, "x"), "the key of an annotation is not a string"),
            (lambda review: review.annotate("x", 5), "the value of an annotation is not a string"),
        ):
            with self.assertRaisesRegex(TypeError, said):
                create(POD).validate(policy(validate=lambda review, _, make=make: make(review)))

        unknown = Patch()
        unknown.operations.append(wrong)
        for mutate, said in (
            (lambda: Patch().remove(wrong), "the path of an operation is not a string but None"),
            (lambda: Patch().move("/a", wrong), "the path of an operation"),
            (lambda: Patch().add("/a", "\ud800"), "half a surrogate pair"),
            (lambda: unknown, "are not all PatchOperations"),
            (lambda: Mutation(), "returned a Mutation of its own making"),
            (lambda: Whole("object-patch", "{}"), "returned a Whole of its own making"),  # type: ignore[arg-type]
        ):
            with self.assertRaisesRegex(TypeError, said):
                create(POD).mutate(policy(mutate=lambda *_, mutate=mutate: mutate()))
        with self.assertRaisesRegex(ValueError, "'foo' is no operation"):
            PatchOperation("foo", "/a")  # type: ignore[arg-type]

    def test_text_for_people_that_is_cut_is_mended(self) -> None:
        def validate(review: Review, _: Any) -> Any:
            review.warn("cut \ud83d")
            return ALLOW

        self.assertEqual(create(POD).validate(policy(validate=validate)).warnings, ["cut \ufffd"])

    def test_setting_makes_each_missing_parent_once(self) -> None:
        def mutate(review: Review, _: Any) -> Patch:
            return (
                Patch()
                .set(review.object, "/metadata/annotations/a", "ü")
                .set(review.object, "/metadata/annotations/b~1c", 2)
                .set(review.object, "/spec/containers/1", None)
                .append(review.object, "/spec/list", 1)
                .append(review.object, "/spec/list", "x")
            )

        outcome = create(POD).mutate(policy(mutate=mutate))
        self.assertTrue(outcome.changed)
        self.assertEqual(outcome.object["metadata"]["annotations"], {"a": "ü", "b/c": 2})
        self.assertEqual(outcome.object["spec"]["containers"], [{"image": "x"}, None, {"image": "y"}])
        self.assertEqual(outcome.object["spec"]["list"], [1, "x"])
        self.assertIsNone(POD["metadata"]["annotations"], "the object of the test is another one")

    def test_merge_patches_and_whole_objects_are_applied(self) -> None:
        def mutated(answer: Any) -> Any:
            return create(POD).mutate(policy(mutate=lambda *_: answer))

        self.assertNotIn("spec", mutated(merge({"spec": None})).object)
        self.assertEqual(mutated(whole_object({"a": 1})).object, {"a": 1})
        self.assertFalse(mutated(Patch()).changed)
        with self.assertRaisesRegex(AssertionError, "the patch does not apply"):
            mutated(Patch().remove("/nothing"))
        with self.assertRaisesRegex(AssertionError, "there is no object"):
            delete(POD).mutate(policy(mutate=lambda *_: merge({})))

    def test_each_setting_that_is_wrong_is_named(self) -> None:
        checked = policy(Settings=Settings, validate=lambda *_: ALLOW)
        for settings, said in (
            ({"maxReplicas": 0}, "/maxReplicas: must be at least 1"),
            ({"maxReplicas": "1", "mode": "c"}, '/maxReplicas: must be a whole number; /mode: must be one of "a", "b"'),
            ({"maxReplicas": True}, "/maxReplicas: must be a whole number"),
            ({"maxReplicas": None}, "/maxReplicas: must be a whole number"),
            ({"max_replicas": 1}, "/max_replicas: unknown setting; there are: limits, maxReplicas, mode, note"),
            ({"limits": {"a/b": {"teams": ["x", 1]}}}, "/limits/a~1b/most: is missing; /limits/a~1b/teams/1: must be a string"),
            ([], "the settings are not an object"),
        ):
            with self.assertRaises(SettingsErrors) as raised:
                create(POD).settings(settings).validate(checked)
            self.assertEqual(str(raised.exception), said)
        create(POD).settings({"limits": {"a": {"most": 1}}, "note": None}).validate(checked)

    def test_a_change_is_told_from_what_stays(self) -> None:
        def validate(review: Review, _: Any) -> Any:
            review.annotate("changes", str(review.changes("/spec")))
            return ALLOW

        checked = policy(validate=validate)
        self.assertEqual(update(POD, POD | {"kind": "X"}).validate(checked).annotations, {"changes": "False"})
        self.assertEqual(update(POD, POD | {"spec": {}}).validate(checked).annotations, {"changes": "True"})

    def test_the_clock_stands_where_the_test_put_it(self) -> None:
        def validate(review: Review, _: Any) -> Any:
            review.warn(clock.now().isoformat())
            return ALLOW

        outcome = create(POD).at(datetime(2026, 1, 2, tzinfo=UTC)).validate(policy(validate=validate))
        self.assertEqual(outcome.warnings, ["2026-01-02T00:00:00+00:00"])


SHOP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "spec": {"finalizers": []},
    "metadata": {"name": "shop", "labels": {"team": "a"}, "managedFields": []},
}


def namespace_of(review: TestReview) -> Any:
    """Returns what a policy reads of its namespace."""
    seen: list[Any] = []

    def validate(review: Review, _: Any) -> Any:
        seen.append(review.namespace.read(""))
        return ALLOW

    review.validate(policy(validate=validate))
    return seen[0]


@dataclass
class Tree:
    """Settings within themselves."""

    leaves: list[Tree] = field(default_factory=list)


@dataclass
class Described:
    """Settings of every type."""

    allowed_names: list[str]
    limits: dict[str, int] = field(default_factory=dict)
    mode: Literal["deny", "warn"] = "deny"
    ratio: float = float("nan")
    note: str | None = None
    anything: Any = None
    tree: Tree = field(default_factory=Tree)


class Schemas(unittest.TestCase):
    """JSON Schemas of settings."""

    def test_schema_comes_from_the_hints(self) -> None:
        self.assertEqual(
            json.loads(_settings.schema(Described)),
            {
                "type": "object",
                "properties": {
                    "allowedNames": {"type": "array", "items": {"type": "string"}},
                    "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "mode": {"enum": ["deny", "warn"], "default": "deny"},
                    "ratio": {"type": "number"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                    "anything": {"default": None},
                    "tree": {
                        "type": "object",
                        "properties": {"leaves": {"type": "array", "items": {"type": "object"}}},
                        "additionalProperties": False,
                    },
                },
                "required": ["allowedNames"],
                "additionalProperties": False,
            },
        )


class Namespaces(unittest.TestCase):
    def test_the_namespace_is_that_of_the_object_with_its_metadata_alone(self) -> None:
        shown = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}}
        for review in (create(POD).namespace_object(SHOP), create(SHOP), delete(SHOP)):
            self.assertEqual(namespace_of(review), shown)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
        self.assertIsNone(namespace_of(create(node)))

    def test_a_namespace_that_the_test_leaves_out_is_not_absent(self) -> None:
        with self.assertRaisesRegex(AssertionError, "namespace_object"):
            namespace_of(create(POD).having(namespace="shop"))

    def test_several_values_are_read_at_once(self) -> None:
        pointers = ("/spec/big", "/spec/nothing", "/spec/containers/0/image", "/spec/containers")
        expected = [9007199254740993, None, "x", Container("array", 3)]
        self.assertEqual(read(lambda found: found.get_many(pointers)), expected)
        with self.assertRaisesRegex(ValueError, "no leading slash"):
            read(lambda found: found.get_many(["/spec", "spec"]))


def ingress(namespace: str, name: str, *hosts: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"team": "a"}},
        "spec": {"priority": 9007199254740993, "rules": [*({"host": host, "http": {}} for host in hosts), {}]},
    }


INGRESSES: dict[str, Any] = {
    "name": "ingresses",
    "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
    "namespaces": ["blog", "shop"],
    "fields": ["/spec/rules/*/host", "/spec/priority"],
    "indexes": {"host": "/spec/rules/*/host", "priority": "/spec/priority"},
}


def in_cluster(review: TestReview, run: Any) -> Any:
    """Runs a function where lookups are."""
    results: list[Any] = []

    def validate(_: Review, __: Any) -> Any:
        results.append(run())
        return ALLOW

    review.validate(policy(validate=validate))
    return results[0]


class Lookups(unittest.TestCase):
    def test_lookups_find_objects(self) -> None:
        objects = [
            ingress("shop", "web", "b.example", "c.example"),
            ingress("blog", "web", "b.example"),
            ingress("blog", "api"),
        ]
        review = create(POD).lookup(INGRESSES, objects)

        def names(run: Any) -> list[str]:
            return [f"{found.namespace}/{found.name}" for found in in_cluster(review, lambda: list(run()))]

        self.assertEqual(names(lambda: cluster.find("ingresses", "host", "b.example")), ["blog/web", "shop/web"])
        self.assertEqual(names(lambda: cluster.find("ingresses", "host", "d.example")), [])
        self.assertEqual(len(names(lambda: cluster.find("ingresses", "priority", "9007199254740993"))), 3)
        self.assertEqual(names(lambda: cluster.list("ingresses", "blog")), ["blog/api", "blog/web"])
        self.assertEqual(len(names(lambda: cluster.list("ingresses"))), 3)
        self.assertIsNone(in_cluster(review, lambda: cluster.get("ingresses", "shop", "api")))
        fields = in_cluster(review, lambda: cluster.get("ingresses", "shop", "web")).fields
        rules = [{"host": "b.example"}, {"host": "c.example"}, {}]
        self.assertEqual(fields.read(""), {"spec": {"priority": 9007199254740993, "rules": rules}})
        self.assertEqual(fields.integer("/spec/priority"), 9007199254740993)
        self.assertEqual(fields.text("/spec/rules/1/host"), "c.example")
        self.assertEqual(fields.get_many(["/spec/rules/0/host", "/metadata"]), ["b.example", None])
        self.assertEqual(fields.keys("/spec"), ["priority", "rules"])
        self.assertEqual(fields.select("/spec/rules/*/host")[1].pointer, "/spec/rules/1/host")
        with self.assertRaisesRegex(ValueError, "no leading slash"):
            fields.get("spec")

    def test_a_loop_gets_all_pages(self) -> None:
        objects = [ingress("shop", f"web-{number:04}") for number in range(1201)]
        found = in_cluster(create(POD).lookup(INGRESSES, objects), lambda: list(cluster.list("ingresses")))
        self.assertEqual((len(found), found[-1].name), (1201, "web-1200"))

    def test_failures_are_typed_and_faults_unless_they_are_caught(self) -> None:
        review = create(POD).lookup(INGRESSES, []).not_synchronised("pods")
        with self.assertRaisesRegex(cluster.NotSynchronised, "^not synchronised: the lookup pods$"):
            in_cluster(review, lambda: cluster.get("pods", "shop", "a"))
        for run in (
            lambda: cluster.get("ingress", "shop", "a"),
            lambda: cluster.get("ingresses", "other", "a"),
            lambda: cluster.get("ingresses", None, "a"),
            lambda: list(cluster.find("ingresses", "hosts", "a")),
        ):
            with self.assertRaises(cluster.NotGranted):
                in_cluster(review, run)
        with self.assertRaisesRegex(ValueError, "unknown key field"):
            create(POD).lookup({"name": "a", "field": []}, [])



class Rights(unittest.TestCase):
    """What users may do, by rules."""

    def test_rules_say_what_the_user_may_do(self) -> None:
        review = create(POD).user("anna", "dev").access(
            [
                {"user": "anna", "verb": "delete", "apiGroup": "apps", "resource": "deployments/scale", "namespace": "shop"},
                {"group": "dev", "verb": "*", "path": "/metrics*"},
                {"user": "system:serviceaccount:shop:robot", "verb": "get", "resource": "*"},
            ]
        )
        scale = access.Resource("delete", "deployments", "apps", "scale", "shop")
        pods, robot = access.Resource("get", "pods"), access.ServiceAccount("shop", "robot")
        for action, account, allowed in (
            (scale, None, True),
            (access.Resource("delete", "deployments", "apps", "scale", "blog"), None, False),
            (access.Resource("delete", "deployments", "apps", namespace="shop"), None, False),
            (access.Path("get", "/metrics/slis"), None, True),
            (access.Path("get", "/healthz"), None, False),
            (pods, None, False),
            (pods, robot, True),
            (scale, robot, False),
        ):
            decision = in_cluster(review, lambda action=action, account=account: access.check(action, account))
            self.assertEqual(decision.allowed, allowed, (action, account))
            self.assertTrue(decision.reason)

    def test_failures_are_typed(self) -> None:
        pods = access.Resource("get", "pods")
        with self.assertRaises(access.NotGranted):
            in_cluster(create(POD), lambda: access.check(pods))
        with self.assertRaises(access.Unavailable):
            in_cluster(create(POD).access_unavailable(), lambda: access.check(pods))
        with self.assertRaisesRegex(AssertionError, "unknown key resources"):
            create(POD).access([{"user": "a", "verb": "get", "resources": "b"}])


class Images(unittest.TestCase):
    """Which images are signed, by a list."""

    def test_images_are_answered_from_the_list(self) -> None:
        digest = f"sha256:{'a' * 64}"
        review = create(POD).images(
            [
                {"image": "nginx", "result": "verified", "digest": digest, "signers": ["release"]},
                {"image": "nginx:2", "policy": "other", "result": "last-known-good"},
                {"image": "nginx:2", "result": "unsigned", "reason": "none at all"},
            ]
        )

        def asked(review: TestReview, image: str, policy: str = "release") -> Any:
            return in_cluster(review, lambda: images.verify([images.Request(image, policy)]))[0]

        for image, pinned in (("nginx", False), ("docker.io/library/nginx:latest", False), (f"nginx@{digest}", True)):
            self.assertEqual(asked(review, image), images.Verified(digest, pinned, ("release",), last_known_good=False))
        self.assertTrue(asked(review, "nginx:2", "other").last_known_good)
        for image, kind, said in (
            ("nginx:2", images.Unsigned, "not signed: none at all"),
            ("nginx:3", images.NotFound, "not found: no entry of images is about docker.io/library/nginx:3"),
            (f"nginx@sha256:{'b' * 64}", images.NotFound, None),
            ("Nginx", images.Malformed, "no valid image: expected an image"),
            ("nginx:", images.Malformed, None),
        ):
            failure = asked(review, image)
            self.assertIs(type(failure), kind, image)
            self.assertEqual(str(failure), said or str(failure))
            self.assertEqual(failure.digest is not None, kind is images.Unsigned)
        self.assertIs(type(asked(create(POD), "nginx")), images.NotGranted)

    def test_every_image_has_an_answer(self) -> None:
        host: Any = SimpleNamespace(verify_images=lambda requests: requests[1:])
        self.addCleanup(_host.use, _host.use(host))
        with self.assertRaisesRegex(RuntimeError, "the host has answered 1 of 2 requests about images"):
            images.verify([images.Request("a", "release"), images.Request("b", "release")])

    def test_what_is_no_request_is_named(self) -> None:
        wrong: Any = "nginx"
        for requests, said in (
            (wrong, "the list of requests is not a list"),
            ([wrong], r"the list of requests\[0\] is not a Request"),
            ([images.Request(wrong, 5)], "the policy of"),  # type: ignore[arg-type]
        ):
            with self.assertRaisesRegex(TypeError, said):
                in_cluster(create(POD), lambda requests=requests: images.verify(requests))
        with self.assertRaisesRegex(AssertionError, "'signed', which is none"):
            create(POD).images([{"image": "nginx", "result": "signed"}])


if __name__ == "__main__":
    unittest.main()
