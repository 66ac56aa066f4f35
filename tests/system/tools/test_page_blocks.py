"""Every code block of the README, the READMEs of the units and the how-to pages does what it says."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.common.certificates import Authority
from tests.system.tools.page_blocks import ROOT, TIMEOUT_S, Block, Reader, blocks_of

RUN = ("sh", "console", "python")

PAGES = [
    str(path.relative_to(ROOT))
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "clients/*/README.md",
        "services/*/README.md",
        "libs/*/README.md",
        "docs/how-to/*.md",
    )
    for path in sorted(ROOT.glob(pattern))
]

_ENGINE = "needs a container engine: tests/system/containers/test_container.py runs the same"
_THIS = "is what runs this test"
_HOSTS = "needs several machines: tests/system/cluster/test_leaders.py starts such nodes"

NOT_RUN = {
    ("README.md", "make test"): _THIS,
    ("CONTRIBUTING.md", "make test"): _THIS,
    ("CONTRIBUTING.md", "make lint types"): "checks the code, not the program; .ci/run calls it",
    ("docs/how-to/run-the-tests.md", "make test"): _THIS,
    ("docs/how-to/run-the-tests.md", "make test-fast"): _THIS,
    ("docs/how-to/run-the-tests.md", 'make test ARGS="tests/conformance -k watch"'): _THIS,
    ("docs/how-to/containers.md", "make image"): _ENGINE,
    (
        "docs/how-to/containers.md",
        "docker run -d --name plane -p 127.0.0.1:9341:9341 -v holdfast:/var/lib/holdfast holdfast-plane",
    ): _ENGINE,
    (
        "docs/how-to/containers.md",
        'docker run -d --name plane -p 9341:9341 -v "$PWD/server.pem:/bundle/server.pem:ro" '
        "-e HOLDFAST_BUNDLE=/bundle/server.pem holdfast-plane",
    ): _ENGINE,
    ("docs/how-to/containers.md", "docker inspect --format '{{json .State.Health}}' plane"): _ENGINE,
    (
        "docs/how-to/cluster.md",
        "holdfast serve --listen :9341 --bundle a/server.pem --tc-client-bundle a/tc-client.pem "
        "--tc-allow-default-ca \\\n    --self https://a:9341",
    ): _HOSTS,
    (
        "docs/how-to/cluster.md",
        "holdfast serve --listen :9341 --bundle b/server.pem --tc-client-bundle b/tc-client.pem "
        "--tc-allow-default-ca \\\n    --self https://b:9341 --join https://a:9341",
    ): _HOSTS,
    (
        "docs/how-to/cluster.md",
        "holdfast tc status --endpoint https://a:9341 --bundle a/tc-client.pem",
    ): _HOSTS,
    (
        "docs/how-to/locks.md",
        "printf 'l\\njob\\n10\\n' | nc 127.0.0.1 6388",
    ): "needs netcat: tests/wire/dflockd/test_recordings.py sends the same bytes",
}
"""Commands that no test types, and why."""


@pytest.fixture
def reader(tmp_path: Path, postgres_url: str) -> Iterator[Reader]:
    reading = Reader(tmp_path, postgres_url)
    (reading.work / "a").mkdir()
    (reading.work / "a" / "server.pem").write_bytes(Authority().bundle("node-a"))  # That of cluster.md.
    yield reading
    reading.close()


def type_all(reader: Reader, page: str) -> str:
    """Everything on a page, from top to bottom; gives what it printed."""
    return "".join(
        reader.type(block, command)
        for block in blocks_of(page)
        if block.language in RUN
        for command in block.commands()
        if (page, command) not in NOT_RUN
    )


def is_typed(block: Block) -> bool:
    return any(word in block.text for word in ("holdfast ", "$ ", "import ", "docker ", "make "))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_every_block_of_a_page_works(page: str, reader: Reader) -> None:
    printed = type_all(reader, page)

    if page == "README.md":
        assert '"n": 1.10' in printed
        assert "nobody else runs this now\n" in printed
        assert "released 1 slot of job\n" in printed
        assert "HTTP/1.1 200" in printed
    if page == "docs/how-to/query.md":
        assert {"true", "304"} <= set(printed.splitlines())
        assert json.loads((reader.work / "order.json").read_text()) == {"n": 2, "status": "done"}
    if page == "docs/how-to/split.md":
        until_ready(reader)


def until_ready(reader: Reader) -> None:
    """The processes of a split plane find each other after they have started."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (answer := httpx.get(f"{reader.plane_url}/readyz", timeout=TIMEOUT_S)).status_code != 200:
        assert time.monotonic() < deadline_s, answer.text
        time.sleep(0.2)


def test_the_list_of_what_is_not_run_is_exact() -> None:
    typed = {
        (page, command)
        for page in PAGES
        for block in blocks_of(page)
        if block.language in RUN
        for command in block.commands()
    }

    assert set(NOT_RUN) - typed == set()


def test_whatever_can_be_typed_is_marked_as_such() -> None:
    """A block of another kind would escape the tests above."""
    unmarked = [
        (page, block.text)
        for page in PAGES
        for block in blocks_of(page)
        if block.language not in RUN and is_typed(block)
    ]

    assert unmarked == []


@pytest.mark.parametrize("page", PAGES)
def test_every_fence_is_one_that_the_tests_see(page: str) -> None:
    lines = (ROOT / page).read_text("utf-8").splitlines()

    fences = [line for line in lines if line.lstrip().startswith(("```", "~~~"))]

    assert len(fences) == 2 * len(blocks_of(page))


def test_a_console_has_prompts() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language != "console" or list(block.commands()), block
