"""Begin and end of tracing, for routers that may be without OpenTelemetry."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from router.config_sources import ConfigError
from router.tracing_config import TracingConfig

if TYPE_CHECKING:
    from router.tracing import Tracing

_EXTRA = "tracing.enabled: needs the extra otel: pip install 'kvroute[otel]'"


@asynccontextmanager
async def open_tracing(
    config: TracingConfig,
    environ: Mapping[str, str] = os.environ,
    load: Callable[[str], ModuleType] = import_module,
) -> AsyncIterator["Tracing | None"]:
    """Tracing as it is configured; None for none. Spans that wait are exported when the context ends, within a
    bound.

    Raises:
        ConfigError: the extra is not installed, or a variable of OpenTelemetry's makes no sense.
    """
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not config.enabled or is_disabled:
        yield None
        return
    try:
        module = load("router.tracing")
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(_EXTRA) from error
    try:
        tracing: Tracing = module.Tracing(config, environ)
    except ValueError as error:
        raise ConfigError(f"tracing: OpenTelemetry's variables: {error}") from error
    try:
        yield tracing
    finally:
        await tracing.close()
