"""The environment of a client: our names first, lockd's as a fallback."""

from pathlib import Path

import pytest

from holdfast.client.environment import client_settings
from holdfast.client.errors import InvalidArgument


def test_without_anything_it_is_the_plane_on_this_machine() -> None:
    settings = client_settings({})

    assert settings.servers == ("http://127.0.0.1:9341",)
    assert (settings.options.namespace, settings.options.drain_aware) == ("default", True)
    assert (settings.options.timeout_s, settings.options.keepalive_timeout_s) == (15.0, 5.0)


def test_our_names_win_over_those_of_lockd() -> None:
    settings = client_settings(
        {
            "LOCKD_CLIENT_SERVER": "a",
            "LOCKD_CLIENT_NAMESPACE": "theirs",
            "HOLDFAST_CLIENT_NAMESPACE": "ours",
            "LOCKD_CLIENT_TIMEOUT": "1m30s",
            "HOLDFAST_CLIENT_DRAIN_AWARE": "off",
            "HOLDFAST_CLIENT_SERVER": "",
        }
    )

    assert settings.servers == ("a",)
    assert (settings.options.namespace, settings.options.timeout_s) == ("ours", 90.0)
    assert not settings.options.drain_aware


def test_the_only_client_bundle_of_the_configuration_directory_is_found(tmp_path: Path) -> None:
    environ = {"HOLDFAST_CONFIG_DIR": str(tmp_path)}
    (tmp_path / "client.pem").touch()

    one = client_settings(environ)
    (tmp_path / "client02.pem").touch()
    two = client_settings(environ)

    assert (one.options.bundle, one.servers) == (tmp_path / "client.pem", ("https://127.0.0.1:9341",))
    assert two.options.bundle is None


def test_arguments_win_over_the_environment() -> None:
    environ = {"HOLDFAST_CLIENT_SERVER": "a", "HOLDFAST_CLIENT_DISABLE_MTLS": "1"}

    settings = client_settings(environ, server="b", disable_mtls=False)

    assert (settings.servers, settings.options.disable_mtls) == (("b",), False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TIMEOUT", "soon"), ("TIMEOUT", "0s"), ("DRAIN_AWARE", "maybe"), ("DISABLE_MTLS", "2")],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"HOLDFAST_CLIENT_{name}"):
        client_settings({f"HOLDFAST_CLIENT_{name}": value})
