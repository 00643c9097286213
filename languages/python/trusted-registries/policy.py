"""Allows only images from certain registries in Pods, and adds a tag to images without one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from image import looks_like_host, parse
from tollgate_sdk import Denial, Document, Manifest, Mutation, Node, Patch, Review, Rule, SettingsErrors, Verdict, pointer

manifest = Manifest(
    name="trusted-registries",
    version="0.1.0",
    description="Lets Pods have images of trusted registries only",
    rules=[Rule(["CREATE", "UPDATE"], [""], ["v1"], ["pods", "pods/ephemeralcontainers"])],
)

PLACES = (
    "/spec/initContainers/*/image",
    "/spec/containers/*/image",
    "/spec/ephemeralContainers/*/image",
    "/spec/volumes/*/image/reference",
)


@dataclass(frozen=True)
class Settings:
    """The settings of the plugin."""

    allowed: list[str] = field(default_factory=list)
    default_tag: str = ""
    message: str = "images must come from trusted registries"


def configure(settings: Settings) -> Settings:
    """Checks the settings."""
    errors = SettingsErrors()
    if not settings.allowed:
        errors.at("/allowed", "name at least one registry, such as registry.example.com")
    prefixes = []
    for index, text in enumerate(settings.allowed):
        host, slash, path = text.removesuffix("/").partition("/")
        if not looks_like_host(host) or (slash and (not path or path.startswith("/"))):
            message = "begins with no registry, such as registry.example.com or localhost:5000"
            errors.at(pointer("allowed", index), message)
        prefixes.append(host.lower() + slash + path)
    if settings.default_tag and not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", settings.default_tag):
        errors.at("/defaultTag", "is no tag")
    errors.raise_if_any()
    return replace(settings, allowed=prefixes)


def validate(review: Review, settings: Settings) -> Verdict:
    """Adds a cause for every image that is not from an allowed registry."""
    denial = Denial(settings.message)
    nodes = images(review.object)
    for node in nodes:
        if not isinstance(node.value, str):
            denial.at(node.pointer, "must be a string")
            continue
        image = parse(node.value)
        if not any(image.is_within(prefix) for prefix in settings.allowed):
            denial.at(node.pointer, f"must be from one of: {', '.join(settings.allowed)}")
        elif settings.default_tag and not image.pinned:
            denial.at(node.pointer, "must have a tag or a digest")
        elif image.tag == "latest":
            review.warn(f"{node.pointer}: the tag latest may stand for another image tomorrow")
    review.annotate("images", str(len(nodes)))
    return denial.if_blamed()


def mutate(review: Review, settings: Settings) -> Mutation:
    """Adds the default tag to images with neither tag nor digest."""
    patch = Patch()
    if not settings.default_tag:
        return patch
    for node in images(review.object):
        if isinstance(node.value, str) and node.value and not parse(node.value).pinned:
            patch.replace(node.pointer, f"{node.value}:{settings.default_tag}")
    if len(patch) > 0:
        review.annotate("pinned", str(len(patch)))
    return patch


def images(pod: Document) -> list[Node]:
    """Returns every place where a Pod names an image."""
    return [node for pattern in PLACES for node in pod.select(pattern)]
