"""The clock capability: a plugin that imports this module is refused unless its configuration grants ``clock``."""

from datetime import datetime

from tollgate_sdk._host import current


def now() -> datetime:
    """The host's wall clock, in UTC. It may step backwards when the host's clock is set."""
    return current().now()
