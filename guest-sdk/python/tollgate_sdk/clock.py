"""The clock capability.

The host does not load a plugin that imports this module unless the configuration grants ``clock``.
"""

from datetime import datetime

from tollgate_sdk._host import current


def now() -> datetime:
    """Returns the time of the host's wall clock, in UTC. It may step backwards when somebody sets the host's clock."""
    return current().now()
