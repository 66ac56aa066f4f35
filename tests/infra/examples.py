"""How many examples a property tries."""

from hypothesis import settings


def examples(searching: int) -> int:
    """All of them when `make test-all` searches, an eighth in `make test`, which tries the same ones every time."""
    is_searching = settings.get_current_profile_name() == "searching"
    return searching if is_searching else searching // 8
