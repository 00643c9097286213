"""JSON Pointers, RFC 6901."""


def pointer(*tokens: str | int) -> str:
    """Returns a pointer from tokens, and escapes them. Tokens are member names and element indices."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def parent(place: str) -> str | None:
    """Returns the container of a place. None for the whole document."""
    return place.rpartition("/")[0] if place else None
