"""Write Tollgate admission plugins in Python.

A policy is a module with a ``manifest`` and a function ``validate``, ``mutate`` or both. A policy with settings also
has a dataclass ``Settings``::

    from dataclasses import dataclass
    from tollgate_sdk import ALLOW, Denial, Manifest, Review, Rule, SettingsErrors, Verdict

    manifest = Manifest(
        name="replica-limit",
        version="1.0.0",
        rules=[Rule(["CREATE", "UPDATE"], ["apps"], ["v1"], ["deployments"])],
    )

    @dataclass(frozen=True)
    class Settings:
        max_replicas: int = 10  # maxReplicas in the configuration

        def __post_init__(self) -> None:
            if self.max_replicas < 1:
                raise SettingsErrors().at("/maxReplicas", "must be at least 1")

    def validate(review: Review, settings: Settings) -> Verdict:
        replicas = review.object.integer("/spec/replicas")
        if replicas is not None and replicas > settings.max_replicas:
            return Denial("too many replicas").at("/spec/replicas", f"must be at most {settings.max_replicas}")
        return ALLOW

Only ``ALLOW`` allows: a function that returns nothing, or something else, is a fault of the plugin, and so is every
exception that is not a :class:`Denial`. The operator reads its text, its file and its line.
"""

from tollgate_sdk._denial import ALLOW, Allow, Cause, CauseType, Denial, Verdict
from tollgate_sdk._log import debug, error, info, trace, warn
from tollgate_sdk._manifest import Manifest, Rule
from tollgate_sdk._patch import UNCHANGED, Mutation, Patch, merge, whole_object
from tollgate_sdk._pointer import pointer
from tollgate_sdk._review import Container, Document, Node, Request, Review, Value
from tollgate_sdk._settings import SettingsErrors

__all__ = [
    "ALLOW",
    "UNCHANGED",
    "Allow",
    "Cause",
    "CauseType",
    "Container",
    "Denial",
    "Document",
    "Manifest",
    "Mutation",
    "Node",
    "Patch",
    "Request",
    "Review",
    "Rule",
    "SettingsErrors",
    "Value",
    "Verdict",
    "debug",
    "error",
    "info",
    "merge",
    "pointer",
    "trace",
    "warn",
    "whole_object",
]
