"""HTTP in, service call, HTTP out: the configuration of a namespace."""

from pydantic import BaseModel, ConfigDict

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, Header, Request, json_answer
from holdfast.common.fields import InvalidNamespace, namespace_of
from holdfast.common.settings import PlaneSettings
from holdfast.state.layer.errors import InvalidNamespaceRequest, NamespaceConfigConflict
from holdfast.state.layer.namespace import FALLBACK_ENGINES, PREFERRED_ENGINES, NamespaceService
from holdfast.state.layer.records_pb2 import NamespaceConfig
from holdfast.state.protocol.lockd.declarations import state_router

BODY_BYTES_MAX = 32 << 10


class QueryEngines(BaseModel):
    model_config = ConfigDict(strict=True)

    preferred_engine: str | None = None
    fallback_engine: str | None = None


class NamespaceRequest(BaseModel):
    model_config = ConfigDict(strict=True)

    namespace: str | None = None
    query: QueryEngines | None = None


class NamespaceAnswer(BaseModel):
    namespace: str
    query: QueryEngines


class NamespaceRoutes:
    """The endpoint of namespaces. `service` is set while the store is open."""

    service: NamespaceService

    def __init__(self, settings: PlaneSettings) -> None:
        self._namespace_default = settings.namespace_default
        self.router = state_router("query")
        etag = {"ETag": "Of the stored configuration; none before one was stored."}
        self.router.add(
            "/v1/namespace",
            self.read,
            methods=("GET",),
            response_model=NamespaceAnswer,
            errors=(InvalidNamespace,),
            summary="The engines that answer the queries of a namespace.",
            query_parameters={"namespace": "The namespace."},
            response_headers=etag,
        )
        self.router.add(
            "/v1/namespace",
            self.write,
            request_model=NamespaceRequest,
            response_model=NamespaceAnswer,
            errors=(InvalidBody, InvalidNamespace, InvalidNamespaceRequest, NamespaceConfigConflict),
            summary="Choose the engines; an index that is turned on is built in the background.",
            request_example={"query": {"preferred_engine": "index", "fallback_engine": "scan"}},
            query_parameters={"namespace": "The namespace, if the body names none."},
            request_headers={"If-Match": "Store only if this is the ETag."},
            response_headers=etag,
            body_limit_bytes=BODY_BYTES_MAX,
            body_limit_error=InvalidBody,
        )

    async def read(self, request: Request, body: None) -> Answer:
        namespace = namespace_of(request.query("namespace"), self._namespace_default)
        return _answer(namespace, await self.service.get(namespace))

    async def write(self, request: Request, body: NamespaceRequest) -> Answer:
        named = (body.namespace or "").strip() or request.query("namespace")
        namespace = namespace_of(named, self._namespace_default)
        if body.query is None:
            raise InvalidNamespaceRequest("query is required: the preferred and the fallback engine")
        config = await self.service.set(
            namespace,
            preferred=_engine(body.query.preferred_engine, PREFERRED_ENGINES),
            fallback=_engine(body.query.fallback_engine, FALLBACK_ENGINES),
            expected_etag=(request.header(b"if-match") or "").strip('" \t'),
        )
        return _answer(namespace, config)


def _engine(text: str | None, allowed: frozenset[str]) -> str:
    name = (text or "").strip().lower()
    if name and name not in allowed:
        raise InvalidNamespaceRequest(f"engine {name[:50]!r} is none of {', '.join(sorted(allowed))}")
    return name


def _answer(namespace: str, config: NamespaceConfig) -> Answer:
    engines = {"preferred_engine": config.preferred_engine, "fallback_engine": config.fallback_engine}
    headers: list[Header] = [(b"etag", config.etag.encode())] if config.etag else []
    return json_answer({"namespace": namespace, "query": engines}, headers=headers)
