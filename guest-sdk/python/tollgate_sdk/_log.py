"""The plugin's log in the host. Leave out the object's values, because they may be secret."""

from tollgate_sdk._check import text
from tollgate_sdk._host import current


def error(message: str) -> None:
    """Logs a failure."""
    current().log("error", text(message, "a message of the log"))


def warn(message: str) -> None:
    """Logs a likely problem. For a message to the user, use ``Review.warn``."""
    current().log("warn", text(message, "a message of the log"))


def info(message: str) -> None:
    """Logs useful information in normal operation, like ``print``."""
    current().log("info", text(message, "a message of the log"))


def debug(message: str) -> None:
    """Logs details for debugging."""
    current().log("debug", text(message, "a message of the log"))


def trace(message: str) -> None:
    """Logs every single step."""
    current().log("trace", text(message, "a message of the log"))
