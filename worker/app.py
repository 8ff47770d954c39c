"""The worker's HTTP application: generation as raw ASGI, everything else as FastAPI routes."""

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from prompt import Api, PromptModel
from worker.api_error import CALLER_FAULTS, ApiError, CallerFault, api_error
from worker.call import CallReader
from worker.flavour import Flavour
from worker.generation_endpoint import GenerationEndpoint
from worker.json_response import json_response
from worker.metrics import WorkerCollector, exposition
from worker.ranks import RankSet
from worker.server_info import WorkerIdentity
from worker.sglang_routes import add_sglang_routes
from worker.sleep import Sleep
from worker.token_routes import TokenRoutes
from worker.truth import residency
from worker.vllm_routes import add_vllm_routes
from worker.vocabulary import Vocabulary

_OPENAI = {"/v1/chat/completions": Api.CHAT, "/v1/completions": Api.COMPLETIONS}
_GENERATION = {
    Flavour.SGLANG: _OPENAI | {"/generate": Api.GENERATE},
    Flavour.VLLM: _OPENAI,
}
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def build_app(
    identity: WorkerIdentity, model: PromptModel, vocabulary: Vocabulary, ranks: RankSet
) -> FastAPI:
    """Wire the application; the ranks must be running for it to answer."""
    config = identity.config
    app = FastAPI(title="kvroute worker", docs_url=None, redoc_url=None)
    reader = CallReader(config, model)
    for path, api in _GENERATION[config.engine].items():
        endpoint = GenerationEndpoint(api, reader, ranks, vocabulary, config.max_body_bytes)
        app.router.routes.append(Route(path, endpoint, methods=["POST"]))
    tokens = TokenRoutes(config, model)
    app.add_route("/tokenize", tokens.tokenize, methods=["POST"])
    app.add_route("/detokenize", tokens.detokenize, methods=["POST"])
    sleep = Sleep(ranks)
    if config.engine is Flavour.VLLM:
        add_vllm_routes(app, identity, ranks, sleep)
    else:
        add_sglang_routes(app, identity, ranks)
    _add_state_routes(app, WorkerCollector(config, ranks, sleep), ranks)
    _add_models(app, identity)
    for fault in (*CALLER_FAULTS, ApiError):
        app.add_exception_handler(fault, _refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    return app


def _add_models(app: FastAPI, identity: WorkerIdentity) -> None:
    @app.get("/v1/models")
    def models() -> Response:
        return json_response(identity.models())


def _add_state_routes(app: FastAPI, collector: WorkerCollector, ranks: RankSet) -> None:
    @app.get("/health")
    def health() -> Response:
        return Response(status_code=200)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(exposition(collector), media_type=_METRICS_TYPE)

    @app.get("/debug/residency")
    async def debug_residency() -> Response:
        return json_response(residency(ranks))


async def _refuse(_request: Request, fault: Exception) -> Response:
    assert isinstance(fault, ApiError | CallerFault)
    error = fault if isinstance(fault, ApiError) else api_error(fault)
    return Response(
        error.body(), error.status.value, dict(error.headers()), media_type="application/json"
    )


async def _refuse_route(request: Request, fault: Exception) -> Response:
    """No route of this path, or of this method."""
    assert isinstance(fault, HTTPException)
    what = request.url.path if fault.status_code == 404 else f"{request.method} {request.url.path}"
    error = ApiError(HTTPStatus(fault.status_code), f"The simulated engine has no {what}.")
    headers = {**(fault.headers or {}), **error.headers()}
    return Response(error.body(), fault.status_code, headers, media_type="application/json")
