"""The endpoint rules of telemetry."""

import pytest

from holdfast.common.telemetry.setup import OtlpEndpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("collector", OtlpEndpoint("grpc", "collector", 4317, True)),
        ("collector:9999", OtlpEndpoint("grpc", "collector", 9999, True)),
        (" 10.0.0.1 ", OtlpEndpoint("grpc", "10.0.0.1", 4317, True)),
        ("[::1]:4000", OtlpEndpoint("grpc", "::1", 4000, True)),
        ("grpc://collector", OtlpEndpoint("grpc", "collector", 4317, True)),
        ("GRPC://collector", OtlpEndpoint("grpc", "collector", 4317, True)),
        ("grpcs://collector", OtlpEndpoint("grpc", "collector", 4317, False)),
        ("http://collector", OtlpEndpoint("http", "collector", 4318, True)),
        ("http://collector:80/", OtlpEndpoint("http", "collector", 80, True)),
        ("https://collector/team/otlp", OtlpEndpoint("http", "collector", 4318, False, "/team/otlp")),
        ("https://collector/team/v1/traces", OtlpEndpoint("http", "collector", 4318, False, "/team")),
    ],
)
def test_an_endpoint_is_read_by_its_scheme(text: str, endpoint: OtlpEndpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "grpc://:4317",
        ":4317",
        "ftp://collector",
        "://x",
        "http://u:p@h",
        "h:port",
        "h:99999",
        "[::1",
        "a b",
        "http://h/?q=1",
    ],
)
def test_another_scheme_or_a_missing_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected host"):
        parse_endpoint(text)


def test_the_path_stands_before_each_signal() -> None:
    endpoint = parse_endpoint("https://collector/team")

    assert endpoint.url("traces") == "https://collector:4318/team/v1/traces"
    assert endpoint.url("metrics") == "https://collector:4318/team/v1/metrics"
