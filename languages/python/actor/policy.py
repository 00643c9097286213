"""Follows instructions in the object under review, for the conformance suite."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import time
from typing import Any

from tollgate_sdk import (
    ALLOW,
    UNCHANGED,
    Cause,
    CauseType,
    Denial,
    Manifest,
    Mutation,
    Patch,
    Review,
    Rule,
    access,
    cluster,
    images,
    info,
    merge,
    pointer,
)

manifest = Manifest(name="actor", version="0.1.0", rules=[Rule(["*"], ["*"], ["*"], ["*/*"])])


def configure(settings: Any) -> None:
    if "do" in settings:
        act(settings["do"], 0)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("boom")


async def promised() -> Any:
    return ALLOW


def validate(review: Review, _: None) -> Any:
    at = review.object
    match at.text("/data/do"):
        case "deny":
            cause = Cause(pointer("data", "a/b"), "wrong", CauseType.VALUE_INVALID)
            return Denial("no", code=422, reason="Invalid").because(cause)
        case "wrong answer":
            return {"allowed": True}
        case "no answer":
            return None
        case "promise":
            return promised()
        case "forgotten":
            promised()
        case "wrong text":
            return Denial("no").at("/data", 5)  # type: ignore[arg-type]
        case "wrong pointer":
            at.get(5)  # type: ignore[arg-type]
        case "read":
            is_null = at.has("/data/null") and at.get("/data/null") is None
            found: tuple[Any, ...] = (
                at.integer("/data/big"),
                at.text("/data/text"),
                str(is_null).lower(),
                str(at.has("/data/absent")).lower(),
                "[" + " ".join(at.keys("/data/members") or []) + "]",
                at.json("/data/exact"),
            )
            review.warn(" ".join(map(str, found)))
            review.annotate("operation", review.operation)
        case "read many":
            big, absent, text = at.get_many(["/data/big", "/data/absent", "/data/text"])
            review.warn(f"{big} {str(absent is not None).lower()} {text}")
        case "namespace":
            review.namespace.text("/metadata/labels/team")
        case "whole":
            review.warn(str(len(at.json("") or "") > 1 << 20).lower())
        case "pointer":
            # A malformed pointer is a fault even for a policy that catches errors.
            try:
                at.get("data")
            except Exception:
                pass
        case "escape":
            at.get("/data/a~b")
        case "log":
            info("hello")
            print("hello", 5)
            logging.getLogger("actor").warning("hello %d", 5)
        case "get" | "find" | "list" | "lookup" as what:
            look_up(what, review)
        case "may" | "rights" as what:
            ask(what, review)
        case "verify":
            verify(review)
        case what:
            act(what, 0)
    return ALLOW


def look_up(what: str, review: Review) -> None:
    """Reads the lookup that the object names, and warns with what it finds."""

    def text(member: str) -> str:
        return review.object.text(pointer("data", member)) or ""

    lookup, namespace = text("lookup"), text("namespace") or None
    if what == "get":
        found = cluster.get(lookup, namespace, text("name"))
        review.warn("none" if found is None else shown(found))
        return
    try:
        for one in cluster.find(lookup, text("index"), text("key")) if what == "find" else cluster.list(lookup, namespace):
            review.warn(shown(one))
    except cluster.Failure as failure:
        if what != "lookup":
            raise
        review.warn("not granted" if isinstance(failure, cluster.NotGranted) else "not synchronised")


def ask(what: str, review: Review) -> None:
    """Asks about the right that the object names, and warns with the answer. ``rights`` warns with the kind of a failure."""

    def text(member: str) -> str:
        return review.object.text(pointer("data", member)) or ""

    action: access.Resource | access.Path = access.Resource(
        text("verb"), text("resource"), text("group"), text("subresource"), text("namespace"), text("name")
    )
    if text("path"):
        action = access.Path(text("verb"), text("path"))
    account = access.ServiceAccount(text("accountNamespace"), text("account")) if text("account") else None
    try:
        decision = access.check(action, account)
    except access.Failure as failure:
        if what != "rights":
            raise
        review.warn("not granted" if isinstance(failure, access.NotGranted) else "unavailable")
        return
    review.warn(f"{str(decision.allowed).lower()} {decision.reason}")


KINDS = {
    images.Malformed: "malformed",
    images.NotGranted: "not granted",
    images.NotFound: "not found",
    images.Unsigned: "unsigned",
    images.Untrusted: "untrusted",
    images.Unavailable: "unavailable",
}


def verify(review: Review) -> None:
    """Asks about the images that the object names, and warns with each answer."""
    policy = review.object.text("/data/policy") or ""
    requests = [images.Request(str(node.value), policy) for node in review.object.select("/data/images/*")]
    for answer in images.verify(requests):
        match answer:
            case images.Verified():
                truths = [str(truth).lower() for truth in (answer.pinned, answer.last_known_good)]
                review.warn(" ".join(["verified", *truths, *answer.signers, answer.digest]))
            case images.Failure():
                review.warn(f"{KINDS[type(answer)]} {answer.digest or '-'} {answer.reason}")


def shown(found: cluster.ClusterObject) -> str:
    hosts = " ".join(str(node.value) for node in found.fields.select("/spec/rules/*/host"))
    label = found.fields.text("/metadata/labels/a~1b") or "-"
    return f"{found.namespace or '-'}/{found.name} [{hosts}] {label} {str(found.fields.has('/metadata/uid')).lower()}"


def act(what: str | None, depth: int) -> int:
    match what:
        case "throw":
            raise ValueError("boom")
        case "crash":
            return [][depth]
        case "other error":
            raise SystemExit("boom")
        case "unprintable":
            raise Unprintable
        case "loop":
            while True:
                depth += 1
        case "memory":
            everything = []
            while True:
                everything.append(bytearray(1 << 20))
        case "recurse":
            return act(what, depth + 1) + 1
        case "clock":
            time.time()
        case "local time":
            time.localtime()
        case "file":
            open("/etc/passwd")
        case "randomness":
            os.urandom(1)
        case "standard input":
            input()
        case "exit code":
            os._exit(203)
        case "library":
            ipaddress.ip_network("boom")
        case "import":
            # By a computed name, because the build sees others.
            importlib.import_module("".join(("statis", "tics")))
    return depth


def mutate(review: Review, _: None) -> Any:
    what = review.object.text("/data/do")
    match what:
        case "patch":
            return (
                Patch()
                .set(review.object, "/metadata/annotations/a~1b", 'ü"\n')
                .set(review.object, "/data/done", True)
                .remove("/data/text")
            )
        case "pointer":
            return Patch().remove("data/text")
        case "merge":
            return merge({"data": {"text": None, "done": True}})
        case "wrong value":
            return Patch().add("/data/none", float("nan"))
        case "unmade":
            return Mutation()
        case "throw" | "loop":
            act(what, 0)
    return UNCHANGED
