"""Where the router may be sent by what it is told: by calls of the control port, and by engines that name their event endpoints.

A host is judged twice: as it is written, and, where it is a name, by the addresses that it leads to at the moment of each
connection. So a name that leads elsewhere later is followed there only if that may be. An address within IPv6 that stands for one
of IPv4 is judged as both. What the configuration itself names is the operator's word, and may be reached wherever it is.

Source: RFC 6890; RFC 4291 §2.5.5.2; RFC 6052 §2.1; RFC 3056 §2.
"""

import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, IPvAnyNetwork
from pydantic_settings import NoDecode

from protocol import EventSource
from router.config_section import Section
from router.config_sources import listed
from router.dialer import Address
from router.discovery import Discovered

_PRIVATE = "127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 ::1/128 fc00::/7"
# This host and network, link-local, clouds' metadata that is elsewhere, multicast and broadcast.
_REFUSED = (
    "0.0.0.0/8 169.254.0.0/16 100.100.100.200/32 192.0.0.192/32 224.0.0.0/4 240.0.0.0/4"
    " ::/128 fe80::/10 fd00:ec2::254/128 fd20:ce::254/128 ff00::/8"
)
_NAT64 = IPv6Network("64:ff9b::/96")
_NUMBERS = re.compile(r"[0-9A-Fa-fxX.]+")
# What is looked up here and judged, never by somebody else; a wildcard stands for a worker's own host.
_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_.])?|\*")

_Ip = IPv4Address | IPv6Address
_Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(listed)]
_Pattern = Annotated[str, Field(pattern=r"^[a-z0-9*._-]{1,253}$")]


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(IPv6Network(one) if ":" in one else IPv4Network(one) for one in text.split())


class ReachConfig(Section):
    """Where the router lets itself be sent by `POST /workers`, and by engines that name their event endpoints. What this
    configuration names, it may reach.

    Attributes:
        networks: that addresses lie in; those of private use by default.
        refused: that they don't lie in, even so: by default link-local ones, where clouds serve credentials of machines,
            the other addresses of such services, multicast, and what is no address of a host.
        hosts: names that are looked up, `*` standing for any characters; any name by default.
    """

    networks: _Networks = _networks(_PRIVATE)
    refused: _Networks = _networks(_REFUSED)
    hosts: Annotated[tuple[_Pattern, ...], NoDecode, BeforeValidator(listed)] = ()


class Told(StrEnum):
    """Who named what was refused."""

    WORKER = "worker"  # the URL or endpoints of a worker that was to be added
    ENDPOINT = "endpoint"  # an engine, as the endpoint of its events
    NAME = "name"  # a name, by the addresses that it leads to


class ReachError(OSError):
    """A host may not be reached. The message says why."""


class Reach:
    """The rules, with the hosts that the configuration names.

    Attributes:
        refusals: by who named the host.
    """

    def __init__(self, rules: ReachConfig, named: Iterable[str] = ()) -> None:
        """``named``: hosts, URLs or endpoints that may be reached wherever they are."""
        self._rules = rules
        self._named = frozenset(map(_host, named))
        self.refusals: Counter[Told] = Counter()

    def refuse_worker(self, *named: str | None) -> None:
        """Look at the URL and the endpoints of a worker that is to be added.

        Raises:
            ReachError: one of them may not be reached.
        """
        for one in named:
            if one is not None and (fault := self._fault(_host(one))) is not None:
                self.refusals[Told.WORKER] += 1
                raise ReachError(fault)

    def reachable(self, found: Discovered) -> Discovered:
        """The worker without event endpoints that may not be reached; each is a fault of what it says."""
        faults = dict.fromkeys(filter(None, map(self._source_fault, found.spec.sources)))
        if not faults:
            return found
        sources = tuple(one for one in found.spec.sources if self._source_fault(one) is None)
        self.refusals[Told.ENDPOINT] += len(found.spec.sources) - len(sources)
        return replace(
            found,
            spec=replace(found.spec, sources=sources),
            faults=(*found.faults, *faults),
            num_faults=found.num_faults + len(faults),
        )

    def admitted(self, host: str, addresses: Sequence[str]) -> Sequence[str]:
        """The addresses of a host that may be reached.

        Raises:
            ReachError: none of them.
        """
        if host.lower() in self._named:
            return addresses
        faults = [self._fault_of(_literal(one)) for one in addresses]
        kept = [one for one, fault in zip(addresses, faults, strict=True) if fault is None]
        if addresses and not kept:
            self.refusals[Told.NAME] += 1
            raise ReachError(f"{host} leads to {addresses[0]}: {faults[0]}")
        return kept

    def admitted_addresses(self, host: str, addresses: Sequence[Address]) -> Sequence[Address]:
        """The same for addresses as sockets take them."""
        kept = set(self.admitted(host, [str(one.sockaddr[0]) for one in addresses]))
        return [one for one in addresses if str(one.sockaddr[0]) in kept]

    def _source_fault(self, source: EventSource) -> str | None:
        """What is wrong with where a source is heard; nothing with a port of the router's own."""
        endpoints = (None if source.is_bound else source.endpoint, source.replay_endpoint)
        faults = (self._fault(_host(one)) for one in endpoints if one is not None)
        fault = next(filter(None, faults), None)
        return None if fault is None else f"event endpoint: {fault}"

    def _fault(self, host: str) -> str | None:
        """What is wrong with a host as it is written; a name is looked at again when it is looked up."""
        if host in self._named:
            return None
        literal = _literal(host)
        if literal is not None:
            return self._fault_of(literal)
        if not _NAME.fullmatch(host):
            return f"{host!r} is neither a name nor an address"
        hosts = self._rules.hosts
        if hosts and not any(fnmatchcase(host, pattern) for pattern in hosts):
            return f"{host} is none of reach.hosts"
        return None

    def _fault_of(self, address: _Ip | None) -> str | None:
        if address is None:
            return "it is no address"
        forms = _forms(address)
        for form in forms:
            for network in self._rules.refused:
                if form in network:
                    return f"{address} may not be reached: it is in {network}, of reach.refused"
        if any(form in network for form in forms for network in self._rules.networks):
            return None
        return f"{address} may not be reached: it is in none of reach.networks"


class CheckedNames:
    """Looks names up, and keeps the addresses that may be reached.

    Args:
        resolve: the look-up itself.
    """

    def __init__(self, reach: Reach, resolve: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._reach = reach
        self._resolve = resolve

    async def __call__(self, host: str) -> Sequence[str]:
        """The host's addresses.

        Raises:
            OSError: it has none, or none that may be reached.
            ValueError: it is no name.
        """
        return self._reach.admitted(host, await self._resolve(host))


def _host(named: str) -> str:
    """Of a URL or endpoint, or a bare host; lower case, without brackets."""
    host = urlsplit(named).hostname if "//" in named else named
    return (host or "").strip("[]").lower()


def _literal(host: str) -> _Ip | None:
    """The address that a host is, in any form that systems take for one: shortened, octal, hexadecimal, one number."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    if _NUMBERS.fullmatch(host):
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            pass
    return None


def _forms(address: _Ip) -> tuple[_Ip, ...]:
    """The address, and that of IPv4 which it stands for."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return address, address.sixtofour
    if address in _NAT64:
        return address, IPv4Address(int(address) & 0xFFFFFFFF)
    if int(address) >> 32 == 0 and int(address) > 1:  # IPv4-compatible, long out of use
        return address, IPv4Address(int(address))
    return (address,)
