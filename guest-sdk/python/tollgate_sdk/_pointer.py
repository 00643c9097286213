"""JSON Pointers, RFC 6901."""


def pointer(*tokens: str | int) -> str:
    """The pointer of its tokens, which are member names and element indices, not escaped."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def parent(place: str) -> str | None:
    """The container of a place; None for the whole document."""
    return place.rpartition("/")[0] if place else None
