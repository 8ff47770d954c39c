"""Routes that only SGLang has: what a worker is, and the flush of its caches."""

from fastapi import FastAPI, Response

from worker.json_response import json_response
from worker.ranks import RankSet
from worker.server_info import WorkerIdentity


def add_sglang_routes(app: FastAPI, identity: WorkerIdentity, ranks: RankSet) -> None:
    """Add them."""

    @app.get("/server_info")
    @app.get("/get_server_info")
    def server_info() -> Response:
        return json_response(identity.server_info())

    @app.get("/model_info")
    @app.get("/get_model_info")
    def model_info() -> Response:
        return json_response(identity.model_info())

    @app.get("/health_generate")
    def health_generate() -> Response:
        return Response(status_code=200)

    @app.post("/flush_cache")
    async def flush_cache() -> Response:
        """All ranks or none: refused while any of them has a request."""
        if not ranks.flush_caches():
            return Response("Requests are running: nothing was flushed.\n", 400)
        return Response("Cache flushed.\n")
