"""Settings: who wins, what is refused and how it is said, what a server decides from them."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from holdfast.cli.reference import pages
from holdfast.common.logging import configure_logging, get_logger
from holdfast.common.settings import PlaneSettings, SettingsError
from holdfast.common.settings.value import is_loopback, parse_host_port
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.settings import LeasesSettings
from holdfast.queue.settings import QueueSettings
from holdfast.state.settings import StateSettings
from holdfast.txn.settings import TxnSettings

ROOT = Path(__file__).parents[3]
SERVICES: list[type[PlaneSettings]] = [
    LeasesSettings,
    StateSettings,
    QueueSettings,
    TxnSettings,
    GatewaySettings,
]


class Place:
    """A home, a working directory and an environment of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {"HOME": str(home)}
        self.config = home / ".holdfast" / "config.yaml"
        self.config.parent.mkdir()
        self.directory = home / "work"
        self.directory.mkdir()

    def load(self, cls: type[PlaneSettings] = PlaneSettings, /, **flags: Any) -> PlaneSettings:
        return cls(_environ=self.environ, _directory=self.directory, **flags)

    def refusal(self, cls: type[PlaneSettings] = PlaneSettings, /, **flags: object) -> str:
        with pytest.raises(SettingsError) as refused:
            self.load(cls, **flags)
        return str(refused.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# Who wins.


def test_a_flag_beats_environment_dotenv_file_and_default(place: Place) -> None:
    seen: list[tuple[float, str]] = []

    def look(**flags: object) -> None:
        settings = place.load(**flags)
        seen.append((settings.ttl_s_default, settings.origin("ttl_s_default")))

    look()
    place.config.write_text("default-ttl: 1s\n")
    look()
    (place.directory / ".env").write_text("HOLDFAST_DEFAULT_TTL=2s\n")
    look()
    place.environ["HOLDFAST_DEFAULT_TTL"] = "3s"
    look()
    look(ttl_s_default="4s")

    assert seen == [
        (30.0, "default"),
        (1.0, f"file {place.config}"),
        (2.0, ".env HOLDFAST_DEFAULT_TTL"),
        (3.0, "env HOLDFAST_DEFAULT_TTL"),
        (4.0, "flag"),
    ]


def test_the_service_prefix_beats_holdfast_which_beats_lockd(place: Place) -> None:
    seen: list[str] = []
    for name in ("LOCKD_MAX_TTL", "HOLDFAST_MAX_TTL", "HOLDFAST_LEASES_MAX_TTL"):
        place.environ[name] = "1h"
        seen.append(place.load(LeasesSettings).origin("ttl_s_max"))

    assert seen == ["env LOCKD_MAX_TTL", "env HOLDFAST_MAX_TTL", "env HOLDFAST_LEASES_MAX_TTL"]
    assert place.load(StateSettings).origin("ttl_s_max") == "env HOLDFAST_MAX_TTL"


def test_an_empty_variable_counts_as_not_set(place: Place) -> None:
    place.environ |= {"HOLDFAST_MAX_TTL": "", "LOCKD_MAX_TTL": "2h"}

    assert place.load().ttl_s_max == 7200


def test_the_environment_beats_dotenv_also_under_a_weaker_name(place: Place) -> None:
    place.environ["LOCKD_MAX_TTL"] = "2h"
    (place.directory / ".env").write_text("HOLDFAST_MAX_TTL=3h\n")

    assert place.load().origin("ttl_s_max") == "env LOCKD_MAX_TTL"


def test_isolated_settings_see_nothing_from_outside(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.config.write_text("max-ttl: 1h\n")
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.setenv("HOLDFAST_DEFAULT_TTL", "7s")

    settings = PlaneSettings.isolated(store="mem://")

    assert (settings.store, settings.ttl_s_default, settings.ttl_s_max) == ("mem://", 30.0, 1800.0)


def test_no_service_prefix_turns_one_setting_into_another() -> None:
    names = {flag.name for flag in PlaneSettings.flags().values()}
    for service in ("leases", "state", "queue", "txn", "gateway"):
        assert {name for name in names if name.removeprefix(f"{service}-") in names - {name}} == set()


# The config file.


@pytest.mark.parametrize("variable", ["HOLDFAST_CONFIG", "LOCKD_CONFIG"])
def test_a_named_file_is_read_instead_of_the_default_one(place: Place, variable: str) -> None:
    place.config.write_text("max-ttl: 1h\n")
    named = place.home / "other.yaml"
    named.write_text("max-ttl: 2h\n")
    place.environ[variable] = "~/other.yaml"

    settings = place.load()

    assert (settings.ttl_s_max, settings.config_file) == (7200, named)


def test_a_named_file_that_is_missing_is_an_error(place: Place) -> None:
    assert (
        place.refusal(config="/nowhere/x.yaml") == "flag --config: config file /nowhere/x.yaml does not exist"
    )


def test_a_file_that_is_a_directory_is_an_error(place: Place) -> None:
    assert "is a directory" in place.refusal(config=str(place.home))
    place.config.mkdir()
    assert "is a directory" in place.refusal()


def test_the_config_directory_is_holdfasts_then_lockds_then_in_the_home(place: Place) -> None:
    seen = [place.load().config_dir]
    for variable in ("LOCKD_CONFIG_DIR", "HOLDFAST_CONFIG_DIR"):
        place.environ[variable] = f"$HOME/{variable}"
        seen.append(place.load().config_dir)

    assert seen == [place.home / name for name in (".holdfast", "LOCKD_CONFIG_DIR", "HOLDFAST_CONFIG_DIR")]


def test_a_bootstrap_directory_is_the_config_directory(place: Place) -> None:
    made = place.home / "made"
    made.mkdir()
    (made / "config.yaml").write_text("max-ttl: 1h\n")

    settings = place.load(bootstrap=str(made))

    assert (settings.config_dir, settings.ttl_s_max, settings.bundle) == (made, 3600, made / "server.pem")
    assert [path.name for path in made.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("defualt-ttl: 1s", "unknown key 'defualt-ttl'; did you mean 'default-ttl'?"),
        ("zzz: 1", "unknown key 'zzz'; `holdfast config show` lists all keys"),
        ("join: [a]", "unknown key 'join'"),
        ("ttl_s_default: 1s", "unknown key 'ttl_s_default'"),
        ("config: x", "key 'config' cannot stand in the file; set --config"),
        ("s3-secret-access-key: x", "cannot stand in the file; set HOLDFAST_S3_SECRET_ACCESS_KEY"),
        ("mtls: maybe", "key mtls in"),
        ("- a", "expected lines of `key: value`"),
        ("a: [", "is not YAML"),
        ("default-ttl: [1, 2]", "expected a duration"),
        ("default-ttl: {a: 1}", "expected a duration"),
        ("ha: 1", "expected 'concurrent', 'failover', 'single' or 'auto'"),
        ("1: 2", "unknown key '1'"),
    ],
)
def test_a_wrong_file_is_refused_by_name(place: Place, text: str, part: str) -> None:
    place.config.write_text(text)

    message = place.refusal()

    assert part in message
    assert str(place.config) in message


def test_a_file_that_is_no_text_or_too_large_is_refused(place: Place) -> None:
    place.config.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in place.refusal()
    place.config.write_text("#" * (2 << 20))
    assert "larger than 1 MiB" in place.refusal()


def test_a_file_without_an_end_is_refused(place: Place) -> None:
    place.config.symlink_to("/dev/zero")

    assert "larger than 1 MiB" in place.refusal()


def test_a_line_that_is_no_yaml_is_named_but_not_shown(place: Place) -> None:
    place.config.write_text("listen: 127.0.0.1:0\nstore: postgres://user:secret@host/database: x\n")

    message = place.refusal()

    assert "line 2" in message
    assert "secret" not in message


def test_an_empty_file_and_empty_values_change_nothing(place: Place) -> None:
    place.config.write_text("")
    assert place.load().ttl_s_default == 30
    place.config.write_text("bundle: ''\nstore:\ndefault-ttl:\n")
    assert place.load().origin("store") == "default"


def test_join_is_called_tc_join_in_the_file_and_is_a_list(place: Place) -> None:
    place.config.write_text("self: https://a\ntc-join: [https://a, https://b]\n")

    assert place.load().join == ["https://a", "https://b"]


def test_join_is_split_at_commas_elsewhere(place: Place) -> None:
    place.environ |= {"HOLDFAST_SELF": "https://a", "HOLDFAST_JOIN": "https://a, https://b,"}

    assert place.load().join == ["https://a", "https://b"]


def test_positive_keys_beat_their_disable_twins_in_the_file_only(place: Place) -> None:
    place.config.write_text(
        "mtls: false\ndisable-mtls: false\nstorage-encryption: true\ndisable-storage-encryption: true\n"
    )
    assert (place.load().mtls_disabled, place.load().storage_encryption_disabled) == (True, False)

    place.environ["HOLDFAST_DISABLE_MTLS"] = "false"
    assert not place.load().mtls_disabled


# Values.


def test_home_and_variables_are_expanded_in_paths(place: Place) -> None:
    place.environ["DATA"] = "/data"
    place.config.write_text("bundle: ~/b.pem\ndenylist-path: ${DATA}/deny\nstore: disk://$DATA/store\n")

    settings = place.load()

    assert settings.bundle == place.home / "b.pem"
    assert (settings.denylist_path, settings.store) == (Path("/data/deny"), "disk:///data/store")


def test_a_dollar_in_a_database_password_stays(place: Place) -> None:
    assert place.load(store="postgres://u:a$HOME@h/db").store == "postgres://u:a$HOME@h/db"


def test_the_default_store_lies_in_the_data_directory_of_the_user(place: Place) -> None:
    assert place.load().store == f"disk://{place.home}/.local/share/holdfast/store"
    place.environ["XDG_DATA_HOME"] = "/data"
    assert place.load().store == "disk:///data/holdfast/store"


@pytest.mark.parametrize("name", ["metrics_listen", "etcd_listen"])
@pytest.mark.parametrize("value", ["off", "", False])
def test_a_listener_may_be_off(place: Place, name: str, value: object) -> None:
    assert getattr(place.load(**{name: value}), name) == ""


def test_the_listener_of_etcds_api_has_an_address_from_flag_or_environment(place: Place) -> None:
    place.environ["HOLDFAST_ETCD_LISTEN"] = "127.0.0.1:2379"

    assert place.load().etcd_listen == "127.0.0.1:2379"
    assert place.load(etcd_listen="[::1]:2380").etcd_listen == "[::1]:2380"
    with pytest.raises(SettingsError, match=r"flag --etcd-listen.*expected host:port"):
        place.load(etcd_listen="2379")


def test_the_replay_interval_is_cut_to_the_sweeper_interval(place: Place) -> None:
    assert place.load(sweeper_interval_s="2s").txn_replay_interval_s == 2


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_is_also_read_from_the_variables_of_aws(place: Place, name: str) -> None:
    place.environ[name] = "eu-north-1"

    assert place.load(store="aws://bucket").aws_region == "eu-north-1"


def test_s3_credentials_fall_back_to_the_root_user(place: Place) -> None:
    place.environ |= {"LOCKD_S3_ROOT_USER": "root", "LOCKD_S3_ROOT_PASSWORD": "hunter2"}

    settings = place.load()

    assert settings.s3_secret_access_key is not None
    assert settings.s3_secret_access_key.get_secret_value() == "hunter2"


def test_settings_do_not_change_after_the_start(place: Place) -> None:
    with pytest.raises(ValueError, match="frozen"):
        place.load().ttl_s_default = 5.0


# What is refused.


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"HOLDFAST_DEFAULT_TTL": "soon"},
            "environment variable HOLDFAST_DEFAULT_TTL: 'soon': expected a duration such as",
        ),
        (
            {"LOCKD_JSON_MAX": "12parsecs"},
            "environment variable LOCKD_JSON_MAX: '12parsecs': expected a size such as",
        ),
        (
            {"HOLDFAST_HA": "maybe"},
            "HOLDFAST_HA: 'maybe': expected 'concurrent', 'failover', 'single' or 'auto'",
        ),
        ({"HOLDFAST_HA_LEASE_TTL": "4s"}, "HOLDFAST_HA_LEASE_TTL: '4s': expected at least 5s"),
        ({"HOLDFAST_DRAIN_GRACE": "-1s"}, "HOLDFAST_DRAIN_GRACE: '-1s': expected at least 0s"),
        (
            {"HOLDFAST_LOGSTORE_SEGMENT_SIZE": "1kB"},
            "HOLDFAST_LOGSTORE_SEGMENT_SIZE: '1kB': expected at least 1MiB",
        ),
        ({"HOLDFAST_JSON_UTIL": "x"}, "HOLDFAST_JSON_UTIL: 'x': expected 'lockd', 'jsonv2' or 'stdlib'"),
        ({"HOLDFAST_LOG_LEVEL": "loud"}, "HOLDFAST_LOG_LEVEL: 'loud': expected 'trace'"),
        ({"HOLDFAST_EXPRESS": "perhaps"}, "HOLDFAST_EXPRESS: 'perhaps': expected a valid boolean"),
        (
            {"HOLDFAST_DEFAULT_NAMESPACE": "Big One"},
            "HOLDFAST_DEFAULT_NAMESPACE: 'Big One': expected text of the form",
        ),
        ({"HOLDFAST_DEFAULT_NAMESPACE": ".sys"}, "does not start with a dot"),
        ({"HOLDFAST_LISTEN": "9341"}, "environment variable HOLDFAST_LISTEN: '9341': expected host:port"),
        ({"HOLDFAST_METRICS_LISTEN": "x:y"}, "HOLDFAST_METRICS_LISTEN: 'x:y': 'x:y': expected host:port"),
        ({"HOLDFAST_STORE": "nowhere"}, "HOLDFAST_STORE: 'nowhere': expected a storage URL such as"),
        ({"HOLDFAST_OTLP_ENDPOINT": "ftp://x"}, "HOLDFAST_OTLP_ENDPOINT: 'ftp://x': expected host[:port]"),
        (
            {"HOLDFAST_BUNDLE": "$NOPE/x"},
            "HOLDFAST_BUNDLE: '$NOPE/x': expected a path, but its variable $NOPE is not set",
        ),
        (
            {"HOLDFAST_CONFIG": "$NOPE/x"},
            "HOLDFAST_CONFIG: '$NOPE/x': expected a path, but its variable $NOPE is not set",
        ),
        ({"HOLDFAST_MAX_TTL": "10s"}, "HOLDFAST_MAX_TTL: max-ttl 10s is below default-ttl 30s (default)"),
        ({"HOLDFAST_STORE": "aws://bucket"}, "store aws:// needs a region: set --aws-region"),
        (
            {"HOLDFAST_JOIN": "https://a,https://A/", "HOLDFAST_SELF": "b"},
            "HOLDFAST_JOIN: https://a is named twice",
        ),
        ({"HOLDFAST_JOIN": "https://a"}, "HOLDFAST_JOIN: needs --self"),
        (
            {"HOLDFAST_ENABLE_PROFILING_METRICS": "1"},
            "HOLDFAST_ENABLE_PROFILING_METRICS needs --metrics-listen",
        ),
        (
            {"HOLDFAST_STORAGE_ENCRYPTION_SNAPPY": "1", "HOLDFAST_DISABLE_STORAGE_ENCRYPTION": "1"},
            "snappy works only with storage encryption",
        ),
        (
            {
                "HOLDFAST_LISTEN_PROTO": "unix",
                "HOLDFAST_LISTEN": "/run/x.sock",
                "HOLDFAST_CONNGUARD_ENABLED": "1",
            },
            "not possible on a unix socket",
        ),
        ({"HOLDFAST_CONNGUARD_FAILURE_THRESHOLD": "1"}, "expected at least 2"),
        ({"HOLDFAST_QRF_CPU_SOFT_LIMIT": "nan"}, "HOLDFAST_QRF_CPU_SOFT_LIMIT: 'nan': expected"),
        (
            {"HOLDFAST_QRF_LOAD_SOFT_MULTIPLIER": "inf"},
            "HOLDFAST_QRF_LOAD_SOFT_MULTIPLIER: 'inf': expected at most",
        ),
    ],
)
def test_a_wrong_value_names_its_variable_and_what_is_expected(
    place: Place, variables: Mapping[str, str], message: str
) -> None:
    place.environ |= variables

    assert message in place.refusal()


def test_all_wrong_values_are_named_at_once(place: Place) -> None:
    lines = place.refusal(ttl_s_default="x", ha="y").splitlines()

    assert [line.partition(": ")[0] for line in sorted(lines)] == ["flag --default-ttl", "flag --ha"]


def test_a_secret_is_not_in_the_message(place: Place) -> None:
    place.environ["HOLDFAST_AZURE_KEY"] = "hunter2"
    message = place.refusal(store="postgres://u:hunter2@h/db", listen="x", redis_url=["hunter2"])

    assert "hunter2" not in message
    assert "flag --redis-url: ***" in message


def test_a_redis_url_of_another_kind_is_refused_without_being_shown(place: Place) -> None:
    message = place.refusal(redis_url="http://:hunter2@h")

    assert message.startswith("flag --redis-url: ***: expected a URL such as redis://")
    assert "hunter2" not in message


def test_an_empty_path_on_the_command_line_is_refused(place: Place) -> None:
    assert place.refusal(bundle="") == "flag --bundle: '': expected a path"


def test_a_user_without_a_home_is_told_what_to_set(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    del place.environ["HOME"]

    assert "set HOME, or HOLDFAST_CONFIG_DIR and --store" in place.refusal()
    place.environ["HOLDFAST_CONFIG_DIR"] = str(place.directory)
    assert place.load(store="mem://").config_dir == place.directory


def test_an_unknown_flag_is_refused(place: Place) -> None:
    assert place.refusal(colour="red") == "colour is not a setting"


FIELDS = st.sampled_from(sorted(PlaneSettings.model_fields))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@bounds(deadline=None)
@given(name=FIELDS, value=ANYTHING)
def test_any_value_either_loads_or_is_refused_by_name(name: str, value: object) -> None:
    flag = PlaneSettings.flags()[name].name
    try:
        PlaneSettings.isolated(**{name: value})
    except SettingsError as refused:
        assert flag in str(refused) or name in str(refused)


# What a server decides from them.


@pytest.mark.parametrize("listen", ["127.0.0.1:9341", "[::1]:0", "localhost:1"])
def test_loopback_without_a_bundle_is_open(place: Place, listen: str) -> None:
    settings = place.load(listen=listen)

    settings.check_start()

    assert (settings.is_mtls_on, settings.is_storage_encryption_on) == (False, False)


@pytest.mark.parametrize("listen", [":9341", "0.0.0.0:9341", "[::]:9341", "10.0.0.1:1", "plane.example:1"])
def test_another_address_without_a_bundle_does_not_start(place: Place, listen: str) -> None:
    with pytest.raises(
        SettingsError, match=r"server\.pem does not exist, but is needed for mutual TLS and storage encr"
    ):
        place.load(listen=listen).check_start()


def test_another_address_starts_when_both_are_disabled_in_so_many_words(place: Place) -> None:
    place.load(listen=":9341", mtls_disabled=True, storage_encryption_disabled=True).check_start()


def test_a_bundle_turns_both_on(place: Place) -> None:
    (place.config.parent / "server.pem").write_text("pem")

    settings = place.load(listen=":9341")

    settings.check_start()
    assert (settings.is_mtls_on, settings.is_storage_encryption_on) == (True, True)


def test_a_bundle_whose_file_was_not_mounted_stops_the_start(place: Place) -> None:
    (place.config.parent / "server.pem").symlink_to("/nowhere/server.pem")

    with pytest.raises(
        SettingsError, match=r"server\.pem is no file, but is needed for mutual TLS and storage"
    ):
        place.load(listen=":9341", open_without_bundle=True).check_start()


def test_a_bundle_that_was_named_must_be_there(place: Place) -> None:
    with pytest.raises(SettingsError, match=r"flag --bundle: /nowhere\.pem does not exist"):
        place.load(bundle="/nowhere.pem").check_start()


@pytest.mark.parametrize(
    "text", ["mtls: true", "storage-encryption: true", "storage-encryption-snappy: true"]
)
def test_asking_for_protection_needs_the_bundle_also_on_loopback(place: Place, text: str) -> None:
    place.config.write_text(text)

    with pytest.raises(SettingsError, match="does not exist, but is needed for"):
        place.load().check_start()


@pytest.mark.parametrize("key", ["disable-mtls", "disable-storage-encryption"])
def test_protection_is_asked_for_by_a_denied_twin_in_the_file(place: Place, key: str) -> None:
    place.config.write_text(f"{key}: false\n")

    with pytest.raises(SettingsError, match="does not exist, but is needed for"):
        place.load().check_start()


def test_a_bundle_that_the_file_names_must_be_there(place: Place) -> None:
    place.config.write_text(f"bundle: {place.config.parent}/server.pem\n")

    with pytest.raises(SettingsError, match=r"key bundle in .* does not exist, but is needed for"):
        place.load().check_start()


def test_joining_others_needs_mutual_tls(place: Place) -> None:
    place.load(self_endpoint="http://a", join=["http://a"]).check_start()
    with pytest.raises(SettingsError, match="flag --join: joining http://b needs mutual TLS and so a bundle"):
        place.load(self_endpoint="http://a", join=["http://a", "http://b"]).check_start()
    with pytest.raises(SettingsError, match="but flag --disable-mtls is set"):
        place.load(self_endpoint="http://a", join=["http://b"], mtls_disabled=True).check_start()


def test_a_node_of_a_cluster_needs_one_tc_client_bundle(place: Place) -> None:
    folder = place.config.parent
    (folder / "server.pem").touch()
    with pytest.raises(SettingsError, match="flag --self: needs a TC client bundle"):
        place.load(self_endpoint="https://a").check_start()
    place.load(self_endpoint="https://a", tc_auth_disabled=True).check_start()

    (folder / "tc-client.pem").touch()
    place.load(self_endpoint="https://a").check_start()

    (folder / "tc-client02.pem").touch()
    with pytest.raises(SettingsError, match="is one of several tc-client bundles"):
        place.load(self_endpoint="https://a").check_start()
    place.load(self_endpoint="https://a", tc_client_bundle=folder / "tc-client.pem").check_start()


def test_a_unix_socket_needs_no_tls(place: Place) -> None:
    settings = place.load(listen_proto="unix", listen="/run/holdfast.sock")

    settings.check_start()
    assert settings.is_local


@pytest.mark.parametrize(
    ("text", "host_port"), [(":9341", ("", 9341)), ("a.b:1", ("a.b", 1)), ("[::1]:65535", ("::1", 65535))]
)
def test_addresses_are_read(text: str, host_port: tuple[str, int]) -> None:
    assert parse_host_port(text) == host_port


@pytest.mark.parametrize("text", ["", "a", "a:", "a:b", "a:65536", "::1:1", "a b:1", "a:1:2", "[x]:1 "])
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_host_port(text)


def test_loopback_is_recognized() -> None:
    assert [
        is_loopback(host) for host in ("127.9.9.9", "::1", "localhost", "", "10.0.0.1", "example.org")
    ] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_settings_without_effect_are_said_in_one_line(place: Place) -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)

    place.load().log_ignored(get_logger("cli.root"))
    place.load(json_util="stdlib", pprof_listen=":1").log_ignored(get_logger("cli.root"))

    configure_logging("info")
    said = [line for line in stream.getvalue().splitlines() if '"sys":"cli.root"' in line]
    assert len(said) == 1
    assert '"names":["json-util","pprof-listen"]' in said[0]


def test_printing_settings_shows_no_secret(place: Place) -> None:
    settings = place.load(
        store="postgres://u:hunter2@h/db", redis_url="redis://:hunter2@h", azure_key="hunter2"
    )

    assert "hunter2" not in f"{settings!r} {settings} {settings.shown()}"


# The declarations.


def test_every_setting_has_a_sentence_and_names_of_its_own() -> None:
    flags = PlaneSettings.flags().values()
    assert (
        len({flag.name for flag in flags})
        == len({flag.key for flag in flags})
        == len(PlaneSettings.model_fields)
    )
    for info in PlaneSettings.model_fields.values():
        assert info.description
        assert info.description.endswith(".")


@pytest.mark.parametrize("cls", SERVICES)
def test_a_service_has_the_same_settings_under_its_own_prefix(cls: type[PlaneSettings]) -> None:
    assert cls.model_fields.keys() == PlaneSettings.model_fields.keys()
    assert cls.model_config.get("env_prefix") == f"HOLDFAST_{cls.__name__.removesuffix('Settings').upper()}_"


def test_a_computed_default_is_what_its_text_says(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = place.load()

    assert settings.config_dir == place.home / ".holdfast"
    assert settings.bundle == settings.config_dir / "server.pem"
    assert settings.tc_trust_dir == settings.config_dir / "tc-trust.d"
    assert (settings.metrics_listen, settings.health_listen, settings.etcd_listen) == ("", "", "")
    assert settings.tc_client_bundle is None
    consumers: list[int] = []
    for cores in (1, 4, 1000):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        consumers.append(place.load().queue_consumers_max)
    assert consumers == [128, 256, 4096]


def test_without_any_option_a_plane_is_open_to_this_machine_only(place: Place) -> None:
    settings = place.load()

    settings.check_start()

    assert (settings.listen, settings.is_local, settings.is_mtls_on) == ("127.0.0.1:9341", True, False)


def test_the_docs_list_every_setting_as_it_is() -> None:
    path = ROOT / "docs" / "reference" / "settings.md"

    assert path.read_text("utf-8") == pages(ROOT)[path], "run `make docs`"
