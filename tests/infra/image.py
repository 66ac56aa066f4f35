"""What `deploy/Containerfile` makes of an image, read from its text, so that it can be run without a container engine."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CONTAINERFILE: Final = ROOT / "deploy" / "Containerfile"
_ELSEWHERE: Final = {
    "/opt/holdfast/ready.py": str(ROOT / "deploy" / "ready.py"),
    "/opt/holdfast/bin/python": sys.executable,
    "/opt/holdfast/bin/holdfast": str(Path(sys.executable).with_name("holdfast")),
}


@dataclass(frozen=True, slots=True)
class Image:
    """The final stage: its variables and commands, with this checkout in the place of `/opt/holdfast`."""

    variables: dict[str, str]
    entry: list[str]
    command: list[str]
    health_check: list[str]
    port: int


def read_image(path: Path = CONTAINERFILE) -> Image:
    lines = path.read_text("utf-8").replace("\\\n", " ")
    stage = lines[lines.rindex("\nFROM ") :]
    (variables,) = re.findall(r"^ENV (.*)$", stage, re.MULTILINE)
    (port,) = re.findall(r"^EXPOSE (\d+)$", stage, re.MULTILINE)
    return Image(
        dict(_pair(word) for word in shlex.split(variables)),
        _words(stage, r"^ENTRYPOINT (\[.*\])$"),
        _words(stage, r"^CMD (\[.*\])$"),
        _words(stage, r"^HEALTHCHECK .* CMD (\[.*\])$"),
        int(port),
    )


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _words(stage: str, pattern: str) -> list[str]:
    (found,) = re.findall(pattern, stage, re.MULTILINE)
    words: list[str] = json.loads(found)
    return [_ELSEWHERE.get(word, word) for word in words]
