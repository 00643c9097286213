"""Image references, split like in container runtimes, with Docker's abbreviations resolved."""

from typing import NamedTuple


class Image(NamedTuple):
    """A reference, split into its parts."""

    name: str
    """The name, including the registry and without the tag."""
    tag: str
    pinned: bool
    """Whether there is a tag or a digest."""

    def is_within(self, prefix: str) -> bool:
        """Compares components: registry.example.com is not a prefix of registry.example.com.evil.io."""
        return self.name == prefix or self.name.startswith(prefix + "/")


def parse(reference: str) -> Image:
    """Splits a reference."""
    name, at, _ = reference.partition("@")
    tag = ""
    # A colon before the last slash belongs to a port.
    if name.rfind(":") > name.rfind("/"):
        name, _, tag = name.rpartition(":")
    host, slash, path = name.partition("/")
    if not slash or not (looks_like_host(host) or host.lower() != host):
        host, path = "docker.io", name
    host = host.lower()
    if host == "index.docker.io":
        host = "docker.io"
    if host == "docker.io" and "/" not in path:
        path = f"library/{path}"
    return Image(f"{host}/{path}", tag, bool(at or tag))


def looks_like_host(component: str) -> bool:
    """Whether the first component is a host, by Docker's rule."""
    return component == "localhost" or "." in component or ":" in component
