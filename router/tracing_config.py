"""Whether and how requests are traced, as it is configured."""

from typing import Annotated

from pydantic import Field

from router.config_section import Section


class TracingConfig(Section):
    """OpenTelemetry traces over OTLP/HTTP, of which the extra `otel` is needed. What is not said here is taken from
    OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`,
    `OTEL_BSP_*` and the rest. `OTEL_SDK_DISABLED=true` turns it off.

    Attributes:
        enabled: trace requests; the trace of a client goes on then, and workers get `traceparent` of the router's spans.
            Otherwise trace headers pass as they are.
        endpoint: base URL of the collector, to which `/v1/traces` is added.
        service_name: of this router; `kvroute` where the environment names none either.
        sample_ratio: share of the traces that begin here which are recorded; those that a client began are recorded
            where it says so.
    """

    enabled: bool = False
    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")] | None = None
    service_name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    sample_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
