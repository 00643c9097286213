"""Keeps NetworkPolicies and load balancers within the allowed ranges of addresses, and out of forbidden ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from tollgate_sdk import Denial, Document, Manifest, Node, Review, Rule, SettingsErrors, Verdict, pointer

Network = IPv4Network | IPv6Network

MAPPED = IPv6Network("::ffff:0:0/96")

manifest = Manifest(
    name="network-ranges",
    version="0.1.0",
    description="Keeps NetworkPolicies and load balancers within ranges of addresses",
    rules=[
        Rule(["CREATE", "UPDATE"], [""], ["v1"], ["services"]),
        Rule(["CREATE", "UPDATE"], ["networking.k8s.io"], ["v1"], ["networkpolicies"]),
    ],
)


@dataclass(frozen=True)
class Settings:
    """The settings of the plugin."""

    allowed: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    require_source_ranges: bool = False


@dataclass(frozen=True)
class Policy:
    """The configured policy."""

    allowed: list[Network]
    forbidden: list[Network]
    require_source_ranges: bool


def configure(settings: Settings) -> Policy:
    """Reads the ranges from the settings."""
    errors = SettingsErrors()
    allowed = _ranges(settings.allowed, "allowed", errors)
    forbidden = _ranges(settings.forbidden, "forbidden", errors)
    if not settings.allowed and not settings.forbidden and not settings.require_source_ranges:
        errors.at("", "there is nothing to do without any of: allowed, forbidden, requireSourceRanges")
    errors.raise_if_any()
    return Policy(_collapsed(allowed), forbidden, settings.require_source_ranges)


def validate(review: Review, policy: Policy) -> Verdict:
    """Adds a cause for every range that is malformed, not allowed, or overlaps a forbidden one."""
    denial = Denial("this range of addresses is not permitted")
    if review.object.text("/kind") == "NetworkPolicy":
        _judge_network_policy(review.object, policy, denial)
    elif review.object.text("/spec/type") == "LoadBalancer":
        _judge_load_balancer(review.object, policy, denial)
    return denial.if_blamed()


def _judge_network_policy(object: Document, policy: Policy, denial: Denial) -> None:
    blocks = object.select("/spec/egress/*/to/*/ipBlock") + object.select("/spec/ingress/*/from/*/ipBlock")
    for block in blocks:
        at = block.pointer
        excepted = _read(object.select(f"{at}/except/*"), denial)
        for cidr in _read(object.select(f"{at}/cidr"), denial):
            _judge(_without(cidr, excepted), f"{at}/cidr", policy, denial)


def _judge_load_balancer(object: Document, policy: Policy, denial: Denial) -> None:
    ranges = object.select("/spec/loadBalancerSourceRanges/*")
    if policy.require_source_ranges and not ranges:
        denial.at("/spec/loadBalancerSourceRanges", "is missing, which lets in the whole world")
    for node in ranges:
        for network in _read([node], denial):
            _judge([network], node.pointer, policy, denial)


def _judge(networks: list[Network], at: str, policy: Policy, denial: Denial) -> None:
    """Checks the networks of a field, without its exceptions."""
    if policy.allowed and not all(_is_within(network, policy.allowed) for network in networks):
        denial.at(at, f"must be within: {', '.join(map(str, policy.allowed))}")
    for forbidden in policy.forbidden:
        if any(network.overlaps(forbidden) for network in networks):
            denial.at(at, f"must not reach {forbidden}: leave it out, or except it")


def _is_within(network: Network, allowed: list[Network]) -> bool:
    return any(_is_part(network, one) for one in allowed)


def _is_part(network: Network, whole: Network) -> bool:
    return network.version == whole.version and network.subnet_of(whole)  # type: ignore[arg-type]


def _without(network: Network, excepted: list[Network]) -> list[Network]:
    """Returns the network without some parts, as the remaining networks."""
    left = [network]
    for part in excepted:
        left = [rest for one in left for rest in _minus(one, part)]
    return left


def _minus(network: Network, part: Network) -> list[Network]:
    if _is_part(network, part):
        return []
    if _is_part(part, network):
        return list(network.address_exclude(part))  # type: ignore[arg-type]
    return [network]


def _read(nodes: list[Node], denial: Denial) -> list[Network]:
    """Reads the ranges in some fields. Adds a cause for each malformed one."""
    networks: list[Network] = []
    for node in nodes:
        try:
            networks.append(_unmapped(ip_network(str(node.value).strip())))
        except ValueError as error:
            denial.at(node.pointer, f"is no range of addresses: {error}")
    return networks


def _unmapped(network: Network) -> Network:
    """Converts IPv4 in IPv6 form, such as ::ffff:10.0.0.0/104, so that it cannot bypass rules for IPv4."""
    if isinstance(network, IPv6Network) and network.subnet_of(MAPPED):
        return ip_network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - MAPPED.prefixlen))
    return network


def _ranges(texts: list[str], setting: str, errors: SettingsErrors) -> list[Network]:
    networks: list[Network] = []
    for index, text in enumerate(texts):
        try:
            networks.append(_unmapped(ip_network(text)))
        except ValueError as error:
            errors.at(pointer(setting, index), f"is no range of addresses: {error}")
    return networks


def _collapsed(networks: list[Network]) -> list[Network]:
    """Merges adjacent networks, so that a range may span several."""
    fours = [network for network in networks if isinstance(network, IPv4Network)]
    sixes = [network for network in networks if isinstance(network, IPv6Network)]
    return [*collapse_addresses(fours), *collapse_addresses(sixes)]
