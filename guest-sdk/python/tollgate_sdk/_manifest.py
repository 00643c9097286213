"""The description of a plugin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rule:
    """Kubernetes' RuleWithOperations, with its wildcards."""

    operations: Sequence[str]
    """``CREATE``, ``UPDATE``, ``DELETE``, ``CONNECT``, or ``*`` for all."""
    api_groups: Sequence[str]
    """The empty string is the core group, ``*`` is all."""
    api_versions: Sequence[str]
    """Versions such as ``v1``, or ``*``."""
    resources: Sequence[str]
    """Resources such as ``pods``, subresources such as ``pods/status``."""
    scope: str | None = None
    """``Cluster``, ``Namespaced`` or ``*``."""


@dataclass(frozen=True)
class Manifest:
    """A plugin's description of itself."""

    name: str
    """Short, in lower case with dashes. At run time, the name in the configuration counts."""
    version: str
    """By convention a semantic version without a leading v."""
    description: str = ""
    """A sentence for people."""
    settings_schema: str | None = None
    """A JSON Schema for the settings, for people. Without it, the schema comes from the hints of ``Settings``."""
    rules: Sequence[Rule] = ()
    """The requests that the plugin is meant for. Rules in the configuration override them."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Additional keys and values, by reverse-DNS or well-known key."""
