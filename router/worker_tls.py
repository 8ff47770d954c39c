"""TLS towards workers: whom the router trusts, and who it says that it is."""

import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from router.causes import cause_of


def _readable(value: Path) -> Path:
    try:
        value.read_bytes()
    except OSError as error:
        raise ValueError(f"{value} cannot be read: {cause_of(error)}") from error
    return value


def _authorities(value: Path) -> Path:
    try:
        ssl.create_default_context(cafile=_readable(value))
    except ssl.SSLError as error:
        raise ValueError(f"{value} holds no certificates in PEM") from error
    return value


_File = Annotated[Path, AfterValidator(_readable)]


class WorkerTls(BaseModel):
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

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca_file: Annotated[Path, AfterValidator(_authorities)] | None = None
    cert_file: _File | None = None
    key_file: _File | None = None
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
        key_file = self.key_file or self.cert_file
        try:
            context.load_cert_chain(self.cert_file, key_file, password=_no_passphrase)
        except (OSError, ValueError) as error:
            is_mismatch = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
            raise ValueError(_words(self.cert_file, key_file, is_mismatch=is_mismatch)) from error


def _no_passphrase() -> str:
    """Asked for where a key has one; without this OpenSSL would ask on the terminal."""
    return ""


def _words(cert_file: Path, key_file: Path, *, is_mismatch: bool) -> str:
    if is_mismatch:
        return f"key_file: {key_file} is not the key of {cert_file}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert_file)
    except ssl.SSLError:
        return f"cert_file: {cert_file} holds no certificate in PEM"
    return f"key_file: {key_file} holds no private key in PEM without a passphrase"
