"""What can be wrong with a selector, a mutation or a document: the problem, where it is, and what to write instead."""

from holdfast.common.errors import HoldfastError

_QUOTED_MAX = 40


class LqlError(HoldfastError):
    """Base of what this library refuses; `position` counts characters from 0 in the text as given."""

    code, status = "invalid_body", 400

    def __init__(self, problem: str, *, position: int | None = None, hint: str = "") -> None:
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"{problem}{where}" + (f"; {hint}" if hint else ""))
        self.problem = problem
        self.position = position
        self.hint = hint


class InvalidSelector(LqlError):
    """A selector that cannot be read, or whose pointer does not start with a slash."""

    code = "invalid_selector"


class MalformedSelector(LqlError):
    """The selector object of a request body has a member of the wrong type, or lacks one."""

    code = "invalid_body"


class InexpressibleSelector(LqlError):
    """A selector that only JSON can carry: the text form would read one of its values as another one."""

    code = "invalid_selector"


class InvalidMutations(LqlError):
    """A mutation that cannot be read."""

    code = "invalid_mutations"


class MutationFailed(LqlError):
    """A mutation that cannot be applied to this document; nothing of it was changed."""

    code = "invalid_body"


class InvalidDocument(LqlError):
    """The document is no JSON, or nested deeper than is read."""

    code = "invalid_body"


def quoted(text: str) -> str:
    """User text within a message: short, on one line."""
    shown = text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}…"
    return (
        f"'{shown.encode('unicode_escape', 'replace').decode()}'" if not shown.isprintable() else f"'{shown}'"
    )
