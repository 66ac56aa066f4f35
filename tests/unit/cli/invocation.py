"""How the tests call `holdfast store …` in their own process."""

from collections.abc import Callable

from typer.testing import Result

Invoke = Callable[..., Result]
