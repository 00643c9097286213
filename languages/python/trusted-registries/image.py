"""Image references, taken apart as container runtimes do, Docker's abbreviations resolved."""

from typing import NamedTuple


class Image(NamedTuple):
    """A reference taken apart."""

    name: str
    """With the registry and without a tag."""
    tag: str
    pinned: bool
    """Whether there is a tag or a digest."""

    def is_within(self, prefix: str) -> bool:
        """By component: registry.example.com is no prefix of registry.example.com.evil.io."""
        return self.name == prefix or self.name.startswith(prefix + "/")


def parse(reference: str) -> Image:
    """Takes a reference apart."""
    name, at, _ = reference.partition("@")
    tag = ""
    # A colon before the last slash is a port's.
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
    """Docker's rule."""
    return component == "localhost" or "." in component or ":" in component
