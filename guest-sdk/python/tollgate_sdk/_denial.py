"""Denials: the message for the user, and every wrong field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self, final

from tollgate_sdk._check import exact, optional, status, text


@final
class Allow:
    """The type of :data:`ALLOW`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ALLOW"


ALLOW: Final = Allow()
"""The answer of ``validate`` that allows the request."""


class CauseType:
    """The CauseTypes of Kubernetes."""

    VALUE_REQUIRED: Final = "FieldValueRequired"
    VALUE_INVALID: Final = "FieldValueInvalid"
    VALUE_NOT_SUPPORTED: Final = "FieldValueNotSupported"
    VALUE_FORBIDDEN: Final = "FieldValueForbidden"


@dataclass(frozen=True)
class Cause:
    """One reason for a denial."""

    field: str | None
    """A pointer to the wrong field. None if the cause is not a single field."""
    message: str
    """A correct value. Leave out the object's values, because they may be secret."""
    reason: str | None = None
    """A Kubernetes CauseType such as :data:`CauseType.VALUE_INVALID`."""

    def __post_init__(self) -> None:
        optional(self.field, "the field of a cause", exact)
        text(self.message, "the message of a cause")
        optional(self.reason, "the reason of a cause", exact)


class Denial(Exception):
    """Denies a request. Return it or raise it."""

    def __init__(self, message: str, *, code: int | None = None, reason: str | None = None) -> None:
        """``code`` is an HTTP status from 400 to 499 (default 403), ``reason`` a Kubernetes StatusReason."""
        super().__init__(text(message, "the message of a denial"))
        self.message = message
        self.code = optional(code, "the code of a denial", status)
        self.reason = optional(reason, "the reason of a denial", exact)
        self.causes: list[Cause] = []

    def at(self, field: str, message: str, reason: str | None = None) -> Self:
        """Adds a cause for a field, and returns the denial."""
        return self.because(Cause(None if field == "" else field, message, reason))

    def because(self, cause: Cause) -> Self:
        """Adds a cause, and returns the denial."""
        self.causes.append(cause)
        return self

    def if_blamed(self) -> Verdict:
        """Returns the denial if it has causes, and ``ALLOW`` otherwise."""
        return self if self.causes else ALLOW


Verdict = Allow | Denial
"""The answer of ``validate``. Anything else is a fault of the plugin, and never an allow."""
