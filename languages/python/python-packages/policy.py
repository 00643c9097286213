"""Uses packages from PyPI, each on request of the object, to show that they work in a plugin and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable

import cerberus
import fastjsonschema
import semver
import yaml
from dateutil.relativedelta import relativedelta
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tollgate_sdk import ALLOW, Manifest, Review, Rule, SettingsErrors, Verdict

TEXT = "port: 80\nlist: [a, b]\n"
WRONG = {"port": 80}

manifest = Manifest(
    name="python-packages",
    version="0.1.0",
    rules=[Rule(["*"], [""], ["v1"], ["configmaps"])],
)


@dataclass(frozen=True)
class Settings:
    """The settings of the plugin."""

    schema: Any


@dataclass(frozen=True)
class Policy:
    """What `configure` prepares. It costs nothing in a call."""

    compiled: Callable[[Any], Any]
    cerberus: cerberus.Validator


def configure(settings: Settings) -> Policy:
    """Compiles the schema."""
    try:
        compiled = fastjsonschema.compile(settings.schema)
    except fastjsonschema.JsonSchemaDefinitionException as error:
        errors = SettingsErrors()
        errors.at("/schema", str(error).splitlines()[0])
        raise errors from None
    return Policy(compiled, cerberus.Validator({"port": {"type": "integer", "min": 1024}}))


def validate(review: Review, policy: Policy) -> Verdict:
    """Uses the package that the object names, and warns with what comes out."""
    review.warn(_use(review.object.text("/data/use") or "", policy))
    return ALLOW


def _use(name: str, policy: Policy) -> str:
    if name == "fastjsonschema":
        try:
            return str(policy.compiled(WRONG))
        except fastjsonschema.JsonSchemaValueException as error:
            return error.message
    if name == "cerberus":
        policy.cerberus.validate(WRONG)
        return str(policy.cerberus.errors)
    if name == "semver":
        return f"{semver.Version.parse('1.10.0') > semver.Version.parse('1.9.0')}"
    if name == "packaging":
        return f"{Version('1.2.3') in SpecifierSet('~=1.2')}"
    if name == "yaml":
        return str(yaml.safe_load(TEXT))
    if name == "dateutil":
        return (datetime.fromisoformat("2026-01-30T00:00:00Z") + relativedelta(months=1)).isoformat()
    return "ok"
