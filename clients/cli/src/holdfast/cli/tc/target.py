"""Calls of a command to the nodes of a cluster: the first one that answers counts."""

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from holdfast.cli.client.print import printable
from holdfast.cli.output import failure
from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.tls import client_context
from holdfast.common.security.trust import find_client_bundle, pem_of, read_trust
from holdfast.common.settings import PlaneSettings

_TIMEOUT_S = 10.0

Members = dict[str, Any]


class TcTarget:
    """The nodes a command speaks to, and the certificate it shows them."""

    def __init__(self, endpoints: Iterable[str], *, bundle: Path | None, as_server: bool = False) -> None:
        words = [word.strip().rstrip("/") for text in endpoints for word in text.split(",")]
        self.endpoints = [word for word in words if word]
        if not self.endpoints:
            raise failure("no node: give --endpoint URL", 2)
        self._bundle = bundle
        self._as_server = as_server

    def first(self, path: str, body: Mapping[str, object] | None = None) -> Members:
        """The answer of the first node that can be reached; a refusal is an answer."""
        silent: list[str] = []
        for endpoint in self.endpoints:
            answer = self.ask(endpoint, path, body)
            if isinstance(answer, str):
                silent.append(f"{endpoint}: {answer}")
                continue
            if "error" in answer:
                detail = printable(str(answer.get("detail", "")))
                raise failure(f"{printable(str(answer['error']))} ({detail})")
            return answer
        raise failure("\n".join(["no node can be reached", *silent]))

    def ask(self, endpoint: str, path: str, body: Mapping[str, object] | None = None) -> Members | str:
        """What one node answers, or why it does not."""
        method = "GET" if body is None else "POST"
        try:
            with httpx.Client(verify=self._tls(endpoint), trust_env=False, timeout=_TIMEOUT_S) as client:
                answer = client.request(method, f"{endpoint}{path}", json=body)
                members = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
            return printable(str(error)) or type(error).__name__
        except ValueError:
            return "the answer is no JSON"
        if not isinstance(members, dict) or (answer.status_code != 200 and "error" not in members):
            return f"the answer ({answer.status_code}) is not one of a node"
        return members

    def _tls(self, endpoint: str) -> ssl.SSLContext | bool:
        if not endpoint.startswith("https:"):
            return True
        settings = PlaneSettings()
        context = client_context(read_bundle(self._bundle_path(settings)))
        more = pem_of(read_trust(settings.tc_trust_dir))
        if more:
            context.load_verify_locations(cadata=more.decode("ascii"))
        return context

    def _bundle_path(self, settings: PlaneSettings) -> Path:
        if self._bundle is not None:
            return self._bundle
        if self._as_server:
            return settings.bundle
        found = find_client_bundle(settings.tc_client_bundle, settings.config_dir)
        if found is None:
            raise failure(f"no TC client bundle in {settings.config_dir}: give --bundle PATH")
        return found
