"""The code blocks of the pages, and a reader who types them one after the other."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.infra.program import free_port
from tests.system.cli import Server, environment, serving

ROOT: Final = Path(__file__).parents[3]
BIN: Final = Path(sys.executable).parent
TIMEOUT_S: Final = 180
SECRET: Final = "a secret of this test"
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PORT: Final = re.compile(r"(?<=[:=])(934[1-5]|6388|2379)\b")
_SERVE: Final = re.compile(
    r"(?:make serve(?: ARGS=\"(?P<flags>[^\"]*)\")?|holdfast serve (?P<rest>.*))", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """One code block of a page; `page` is its path in the repository."""

    page: str
    language: str
    text: str

    def commands(self) -> Iterator[str]:
        """What a reader types: the lines of a console that begin with a prompt, or the whole block."""
        if self.language == "console":
            for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.text, re.MULTILINE):
                yield re.sub(r"\s+# .*$", "", command)
        else:
            yield self.text


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    return [Block(page, language, block) for language, block in _FENCE.findall(text)]


class Reader:
    """Types the commands of a page into a home of its own. Ports, the store's URL and `.venv` are those of the test."""

    def __init__(self, home: Path, postgres_url: str) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        self.ports = {str(port): str(free_port()) for port in (*range(9341, 9346), 6388, 2379)}
        self._postgres_url = postgres_url
        self._servers: dict[str, Server] = {}
        self._stack = ExitStack()
        self._variables = {
            "HOLDFAST_INTERNAL_SECRET": SECRET,
            "HOLDFAST_CLIENT_SERVER": self.plane_url,
        }

    @property
    def plane_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['9341']}"

    def close(self) -> None:
        self._stack.close()

    def type(self, block: Block, command: str) -> str:
        """Run a command to its end, or start a server that goes on; gives what it printed."""
        here = self._as_here(command)
        serve = _SERVE.fullmatch(here)
        if serve is not None:
            flags = serve["flags"] or serve["rest"] or ""
            self._serve(*shlex.split(flags.replace("\\\n", " ")))
            return ""
        if " store " in command:  # It must be there, and not be in use.
            self._serve()
            self._stop()
        elif self.plane_url in here or re.search(r"\bholdfast (client|queue|locks?|kv) ", command):
            self._serve()
        words = [sys.executable, "-c", here] if block.language == "python" else ["sh", "-euc", here]
        done = subprocess.run(
            words,
            cwd=self.work,
            env=environment(self.home, **self._variables, PATH=f"{BIN}:/usr/local/bin:/usr/bin:/bin"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{block.page}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _as_here(self, command: str) -> str:
        text = _PORT.sub(lambda match: self.ports[match[1]], command)
        text = text.replace("postgres://user@host/plane", self._postgres_url)
        text = text.replace("/var/lib/holdfast", f"{self.home}/var")
        return text.replace("$PWD/.venv/bin", str(BIN)).replace(".venv/bin/", f"{BIN}/")

    def _serve(self, *flags: str) -> None:
        """Once for each address; without flags the plane of `make serve`."""
        words = list(flags)
        if "--listen" not in flags:
            tcp_address = f"127.0.0.1:{self.ports['6388']}"
            words += ["--listen", self.plane_url.removeprefix("http://"), "--tcp-listen", tcp_address]
        address = words[words.index("--listen") + 1]
        if address not in self._servers:
            self._servers[address] = self._stack.enter_context(serving(self.home, *words, **self._variables))

    def _stop(self) -> None:
        for server in self._servers.values():
            assert server.stop() == 0
        self._servers.clear()
