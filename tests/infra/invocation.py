"""How the tests call commands in their own process."""

from collections.abc import Callable

from typer.testing import CliRunner, Result

from holdfast.cli.main import app

Invoke = Callable[..., Result]
"""`holdfast store …`."""


def client(*arguments: str, text: str | bytes | None = None) -> Result:
    """`holdfast client …`."""
    return CliRunner().invoke(app, ["client", *arguments], input=text)
