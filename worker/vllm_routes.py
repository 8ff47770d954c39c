"""Routes that only vLLM has: what a worker is, where its events are heard, and its caches and sleep.

Those of its developer mode are always there. Requests that run are never reset.
"""

from fastapi import FastAPI, Query, Response

from worker.json_response import json_response
from worker.ranks import RankSet
from worker.server_info import WorkerIdentity
from worker.sleep import Sleep


def add_vllm_routes(app: FastAPI, identity: WorkerIdentity, ranks: RankSet, sleep: Sleep) -> None:
    """Add them."""
    _add_identity(app, identity)
    _add_state(app, ranks, sleep)
    _add_sleep(app, sleep)


def _add_identity(app: FastAPI, identity: WorkerIdentity) -> None:
    @app.get("/version")
    def version() -> Response:
        own = identity.config.model_dump(mode="json")
        return json_response({"version": identity.config.release.version, "kvroute_worker": own})

    if identity.config.release.names_sources:

        @app.get("/kv_event_sources")
        def kv_event_sources() -> Response:
            return json_response(identity.event_sources())

    @app.get("/ping")
    def ping() -> Response:
        return Response(status_code=200)


def _add_state(app: FastAPI, ranks: RankSet, sleep: Sleep) -> None:
    @app.get("/load")
    async def load() -> Response:
        """Zero, as without ``--enable-server-load-tracking``."""
        return json_response({"server_load": 0})

    @app.get("/is_sleeping")
    async def is_sleeping() -> Response:
        return json_response({"is_sleeping": sleep.is_sleeping})

    @app.get("/is_paused")
    async def is_paused() -> Response:
        return json_response({"is_paused": sleep.is_paused})

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache(*, reset_external: bool = False) -> Response:
        """All ranks or none; the CPU tier is kept unless it is named too."""
        return json_response({"success": ranks.flush_caches(keeps_host=not reset_external)})


def _add_sleep(app: FastAPI, sleep: Sleep) -> None:
    @app.post("/sleep")
    async def fall_asleep(level: int = Query(default=1, ge=0, le=2)) -> Response:
        sleep.sleep(level)
        return Response(status_code=200)

    @app.post("/wake_up")
    async def wake_up() -> Response:
        sleep.wake_up()
        return Response(status_code=200)

    @app.post("/pause")
    async def pause() -> Response:
        sleep.pause()
        return json_response({"status": "paused"})

    @app.post("/resume")
    async def resume() -> Response:
        sleep.resume()
        return json_response({"status": "resumed"})
