"""What stands between clients and the ports' applications, as it is configured; without any of it nothing does."""

from collections.abc import Mapping, Sequence

from starlette.types import ASGIApp

from router.client_keys import ClientKeys
from router.config import ConfigError, RouterConfig
from router.connections import ConnectionGuard
from router.cors import Cors, CorsApp
from router.data_app import DataApp
from router.file_watch import Reloaded
from router.key_file import KeyFile
from router.key_gate import KeyGate
from router.observed_app import ObservedApp, Observer
from router.server_certificate import ServerCertificate

_WORKERS_SAY = Cors()


def client_keys(config: RouterConfig, now: float) -> ClientKeys | None:
    """The keys that clients need; None where they need none."""
    if not config.keys and config.keys_file is None:
        return None
    token = None if config.worker_token is None else config.worker_token.get_secret_value()
    return ClientKeys(config.keys, token, now)


def key_file(config: RouterConfig, keys: ClientKeys | None) -> KeyFile | None:
    """The file that keys come from; None where there is none.

    Raises:
        ConfigError: it holds none any more.
    """
    if config.keys_file is None or keys is None:
        return None
    try:
        return KeyFile(config.keys_file, config.keys, keys)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def watched_files(
    certificates: Mapping[str, ServerCertificate], keys: KeyFile | None
) -> dict[str, Reloaded]:
    """What is read again while the router runs, by what the log calls it."""
    found: dict[str, Reloaded] = {
        f"the certificate of the {port} port": one for port, one in certificates.items()
    }
    if keys is not None:
        found["the file of keys"] = keys
    return found


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
