"""TLS of a port: the certificate that clients see, and what may be spoken."""

import ssl
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from router.config_section import Section
from router.tls_identity import ReadableFile, identify, readable

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class ListenerTls(Section):
    """TLS of a port. Files are PEM. They are read again at SIGHUP, and within seconds of a change; a pair that does not fit
    is told in the log, and the one before it stays.

    Attributes:
        cert_file: the certificate, with what leads to its authority.
        key_file: its key, without a passphrase; by default in the same file.
        min_version: the oldest TLS that is spoken.
    """

    cert_file: ReadableFile
    key_file: Annotated[Path, AfterValidator(readable)] | None = None
    min_version: Literal["1.2", "1.3"] = "1.2"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.context()
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        """All that are read."""
        return (self.cert_file,) if self.key_file is None else (self.cert_file, self.key_file)

    def context(self) -> ssl.SSLContext:
        """For connections of clients, from the files as they are.

        Raises:
            ValueError: they do not fit.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = _VERSIONS[self.min_version]
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        identify(context, self.cert_file, self.key_file or self.cert_file)
        return context
