"""TLS towards workers: whom the router trusts, and who it says that it is."""

import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from router.config_section import Section
from router.tls_identity import ReadableFile, identify, readable


def _authorities(value: Path) -> Path:
    try:
        ssl.create_default_context(cafile=readable(value))
    except ssl.SSLError as error:
        raise ValueError(f"{value} holds no certificates in PEM") from error
    return value


class WorkerTls(Section):
    """TLS to workers whose URL is `https`, of requests and of the router's own calls alike. Files are PEM,
    and read when the router starts.

    Attributes:
        ca_file: certificates of the authorities that are trusted, in place of the system's. Those are OpenSSL's,
            which `SSL_CERT_FILE` and `SSL_CERT_DIR` replace.
        cert_file: the router's own certificate, with what leads to its authority, for workers that ask for one.
        key_file: the key of `cert_file`, without a passphrase; by default in the same file.
        verify: check workers' certificates. Without it anybody who can answer in a worker's place can read and
            answer its requests.
    """

    ca_file: Annotated[Path, AfterValidator(_authorities)] | None = None
    cert_file: ReadableFile | None = None
    key_file: ReadableFile | None = None
    verify: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.ca_file is not None and not self.verify:
            raise ValueError("ca_file: is of no use where verify is false")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file: is of no use without cert_file")
        self._identify(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return self

    def context(self) -> ssl.SSLContext:
        """For connections to workers."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._identify(context)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _identify(self, context: ssl.SSLContext) -> None:
        """Take certificate and key, if there are.

        Raises:
            ValueError: they are none, or do not belong together.
        """
        if self.cert_file is None:
            return
        identify(context, self.cert_file, self.key_file or self.cert_file)
