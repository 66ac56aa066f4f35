"""Which suite a machine writes with."""

from pathlib import Path

import pytest

from holdfast.storage.codec.suite import Suite, preferred_suite


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        ("processor\t: 0\nflags\t\t: fpu vme aes avx\n", Suite.AES_256_GCM),
        ("Features\t: fp asimd aes sha2\n", Suite.AES_256_GCM),
        ("flags\t\t: fpu vaes_like avx\nmodel name : aes\n", Suite.CHACHA20_POLY1305),
        ("", Suite.CHACHA20_POLY1305),
        ("\xff\xfe", Suite.CHACHA20_POLY1305),
    ],
)
def test_aes_is_chosen_where_the_cpu_has_it(tmp_path: Path, text: str, suite: Suite) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text, encoding="latin-1")

    assert preferred_suite(cpuinfo) == suite


def test_a_machine_that_does_not_tell_gets_chacha20(tmp_path: Path) -> None:
    assert preferred_suite(tmp_path / "nothing") == Suite.CHACHA20_POLY1305
