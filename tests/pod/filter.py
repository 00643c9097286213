#!/usr/bin/python3
"""Compiles the seccomp profile that container runtimes use by default, for a process without capabilities.

usage: filter.py PROFILE.json > FILTER

The profile is in the format of docker and containers-common. The filter is a BPF program, as `bwrap --seccomp` reads it.
"""

import json
import platform
import sys

import seccomp

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OPERATORS = {
    "SCMP_CMP_EQ": seccomp.EQ,
    "SCMP_CMP_NE": seccomp.NE,
    "SCMP_CMP_LT": seccomp.LT,
    "SCMP_CMP_LE": seccomp.LE,
    "SCMP_CMP_GT": seccomp.GT,
    "SCMP_CMP_GE": seccomp.GE,
}


def action(rule):
    if rule["action"] == "SCMP_ACT_ALLOW":
        return seccomp.ALLOW
    if rule["action"] == "SCMP_ACT_ERRNO":
        return seccomp.ERRNO(rule.get("errnoRet", 1))
    sys.exit(f"the profile has an action that is not known here: {rule['action']}")


def applies(rule, architecture):
    """Tells whether a rule is for this machine and for a process without capabilities."""
    included, excluded = rule.get("includes") or {}, rule.get("excludes") or {}
    if included.get("caps") or architecture in excluded.get("arches", []):
        return False
    return architecture in included.get("arches", [architecture])


def argument(comparison):
    operator = OPERATORS.get(comparison["op"])
    if operator is None:
        sys.exit(f"the profile has an operator that is not known here: {comparison['op']}")
    return seccomp.Arg(comparison["index"], operator, comparison["value"])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    architecture = ARCHITECTURES[platform.machine()]
    rules = seccomp.SyscallFilter(seccomp.ERRNO(profile.get("defaultErrnoRet", 1)))
    for rule in profile["syscalls"]:
        if not applies(rule, architecture):
            continue
        arguments = [argument(comparison) for comparison in rule.get("args") or []]
        for name in rule["names"]:
            rules.add_rule(action(rule), name, *arguments)
    rules.export_bpf(sys.stdout)


main()
