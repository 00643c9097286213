"""The plugin's log in the host. Leave out the object's values: they may be secret."""

from tollgate_sdk._check import text
from tollgate_sdk._host import current


def error(message: str) -> None:
    """Logs that something failed."""
    current().log("error", text(message, "a message of the log"))


def warn(message: str) -> None:
    """Logs that something is likely to be wrong. What the user should read is for ``Review.warn``."""
    current().log("warn", text(message, "a message of the log"))


def info(message: str) -> None:
    """Logs what is worth knowing in normal operation. So does ``print``."""
    current().log("info", text(message, "a message of the log"))


def debug(message: str) -> None:
    """Logs for whoever looks for a fault."""
    current().log("debug", text(message, "a message of the log"))


def trace(message: str) -> None:
    """Logs every step."""
    current().log("trace", text(message, "a message of the log"))
