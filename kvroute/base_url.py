"""A server as a flag names it: the base URL, and what is said where the server cannot be spoken to."""

import ssl

import httpx
from pydantic import ValidationError

from kvroute.running import refuse
from protocol.fault_words import fault_words
from router.causes import cause_of
from router.plain_text import plain
from router.worker_entry import WorkerEntry


def base_url(flag: str, given: str) -> str:
    """The URL without its trailing slash; ``http://`` where no scheme is given.

    Raises:
        typer.Exit: with 2, it is no URL of a server.
    """
    url = given if "://" in given else f"http://{given}"
    try:
        return WorkerEntry(url=url).url
    except ValidationError as error:
        why = fault_words(error.errors(include_input=False)[0])
        refuse(f"{flag}: {plain(ascii(given))}: {plain(why)}")


def system_trust() -> ssl.SSLContext:
    """For https: the system's authorities, which ``SSL_CERT_FILE`` replaces, as the router trusts them."""
    return ssl.create_default_context()


def connection_words(url: str, error: httpx.HTTPError) -> str:
    """Why there is no answer from the server at the URL."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        why = "no answer in time" if isinstance(error, httpx.ConnectTimeout) else cause_of(error)
        return f"cannot connect to {url}: {why}"
    if isinstance(error, httpx.TimeoutException):
        return f"{url} does not answer in time"
    if isinstance(error, httpx.RemoteProtocolError):
        hint = "; does it speak https?" if url.startswith("http://") else ""
        return f"{url} does not speak HTTP: {cause_of(error)}{hint}"
    return f"{url}: {cause_of(error)}"
