"""What stands between clients and the ports' applications, as it is configured; without any of it nothing does."""

from collections.abc import Sequence

from starlette.types import ASGIApp

from router.client_keys import ClientKeys
from router.config import RouterConfig
from router.connections import ConnectionGuard
from router.cors import Cors, CorsApp
from router.data_app import DataApp
from router.key_gate import KeyGate
from router.observed_app import ObservedApp, Observer
from router.server_certificate import ServerCertificate

_WORKERS_SAY = Cors()


def client_keys(config: RouterConfig, now: float) -> ClientKeys | None:
    """The keys that clients need; None where they need none."""
    if not config.keys:
        return None
    token = None if config.worker_token is None else config.worker_token.get_secret_value()
    return ClientKeys(config.keys, token, now)


def front_of(app: DataApp, keys: ClientKeys | None, cors: Cors = _WORKERS_SAY) -> ASGIApp:
    """The application that clients meet."""
    gate: ASGIApp = app if keys is None else KeyGate(app, keys)
    return gate if cors.origins is None else CorsApp(gate, cors.origins, cors.max_age_s)


def observed(app: ASGIApp, observers: Sequence[Observer], guard: ConnectionGuard) -> ASGIApp:
    """The application before which observers stand, if there are any; they are told what its port refuses, too."""
    if not observers:
        return app
    before = ObservedApp(app, observers)
    guard.on_refused = before.refused
    return before


def server_certificates(config: RouterConfig) -> dict[str, ServerCertificate]:
    """By the names of the ports that speak TLS."""
    chosen = {"data": config.tls, "control": config.control_tls}
    return {name: ServerCertificate(tls) for name, tls in chosen.items() if tls is not None}
