"""Judges requirements against a live cluster: Met, Missing or Unknown, each with its reason in words.

The probes, the sweep and `serving-stack check` call it. What cannot be told is Unknown, never a pass nor a miss.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from functions.access.definitions import CRDS, read_definition
from functions.access.errors import AccessError, NotFound, one_line
from functions.catalog import CustomResource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from functions.access.client import Client
    from functions.access.discovery import Discovery
    from functions.access.targets import Target
    from functions.catalog import Component, DeviceClass, Requirement

API_SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"

NOT_DISCOVERED: Final = "NotDiscovered"
"""Reason of an Established CRD that discovery does not list, as while an API server starts."""

YET: Final = " yet"

PATIENCE: Final = tuple(0.002 * 2**n for n in range(9))
"""Seconds between looks at discovery that trails an Established CRD; 1.02 s in all."""


class Outcome(StrEnum):
    """What can be said of a requirement."""

    MET = "Met"
    MISSING = "Missing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one requirement.

    Attributes:
        reason: CamelCase, as in a condition; empty when met.
        detail: Why, in words that stay the same while the trouble does; empty when met.
        passing: Whether it is missing for this moment only: a CRD that is about to be Established, which is an event.
    """

    requirement: Requirement
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    passing: bool = False

    def __str__(self) -> str:
        return f"{self.requirement}: {self.detail or 'met'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of a component: missing if anything of it is, else unknown if anything is."""

    component: Component
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of its findings."""
        return worst(self.findings)

    @property
    def reason(self) -> str:
        """The reason of the first finding that decides; `Provided` when all is met."""
        return next((each.reason for each in self._deciding), "Provided")

    @property
    def message(self) -> str:
        """Every finding that decides, in the order of the user's page; a text that they share stands once."""
        details = {each.detail for each in self._deciding}
        if self.outcome is Outcome.UNKNOWN and len(details) == 1 and len(self._deciding) == len(self.findings):
            return details.pop()
        return "; ".join(str(each) for each in self._deciding)

    @property
    def passing(self) -> bool:
        """Whether something of it is missing for this moment only."""
        return any(each.passing for each in self._deciding)

    @property
    def _deciding(self) -> tuple[Finding, ...]:
        outcome = self.outcome
        return tuple(each for each in self.findings if each.outcome is outcome is not Outcome.MET)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one look at a cluster found.

    Attributes:
        verdicts: In the order of the components that were asked for.
        discovery: What the cluster served when they were found; None where nothing rested on it.
    """

    verdicts: tuple[Verdict, ...]
    discovery: Discovery | None = None

    def finding(self, requirement: Requirement) -> Finding | None:
        """What was found of one requirement, None where it was not looked at."""
        findings = (each for verdict in self.verdicts for each in verdict.findings)
        return next((each for each in findings if each.requirement == requirement), None)


def worst(findings: Iterable[Finding]) -> Outcome:
    """Missing if anything is, else Unknown if anything is, else Met."""
    outcomes = {each.outcome for each in findings}
    return next((each for each in (Outcome.MISSING, Outcome.UNKNOWN) if each in outcomes), Outcome.MET)


def unknown(components: Iterable[Component], trouble: AccessError) -> Judgement:
    """The judgement on components of a cluster that could not be asked at all."""
    return Judgement(
        tuple(
            Verdict(
                each, tuple(Finding(one, Outcome.UNKNOWN, trouble.reason, str(trouble)) for one in each.requirements)
            )
            for each in components
        )
    )


async def judge(
    target: Target,
    components: Sequence[Component],
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    changed: Collection[str] = (),
    former: Judgement | None = None,
) -> Judgement:
    """Judges components by what the cluster serves and holds right now.

    Args:
        target: The cluster.
        components: Which ones.
        sleep: Waits so many seconds while discovery trails a CRD.
        changed: Names of objects that events pointed at; looked at closely even where discovery is content, since
            discovery learns of a deletion some milliseconds later.
        former: What was found just before: while discovery stays the same, so do its findings on CRDs.
    """
    requirements = tuple(dict.fromkeys(one for each in components for one in each.requirements))
    look = _Look(target, requirements, changed, former)
    found = dict(zip(requirements, await asyncio.gather(*map(look.at, requirements)), strict=True))
    trailing = [
        each for each, finding in found.items() if finding.reason == NOT_DISCOVERED and isinstance(each, CustomResource)
    ]
    for seconds in PATIENCE:
        if not trailing:
            break
        await sleep(seconds)
        try:
            look.discovery = await target.discovery.read(look.groups)
        except AccessError:
            break
        served = [each for each in trailing if look.discovery.serves(each.group, each.version, each.plural)]
        found.update((each, Finding(each, Outcome.MET)) for each in served)
        trailing = [each for each in trailing if each not in served]
    for each in trailing:
        found[each] = await look.hidden(each)
    return Judgement(
        tuple(Verdict(each, tuple(found[one] for one in each.requirements)) for each in components), look.discovery
    )


class _Look:
    """One look at one cluster; discovery is asked at most once, however many requirements rest on it."""

    def __init__(
        self,
        target: Target,
        requirements: Sequence[Requirement],
        changed: Collection[str],
        former: Judgement | None,
    ) -> None:
        self.groups = frozenset(each.group for each in requirements)
        self.discovery: Discovery | None = None
        self._former = former
        self._client: Client = target.client
        self._reader = target.discovery
        self._reading: asyncio.Task[Discovery] | None = None
        self._changed = changed

    async def at(self, requirement: Requirement) -> Finding:
        try:
            if isinstance(requirement, CustomResource):
                return await self._custom_resource(requirement)
            return await self._device_class(requirement)
        except AccessError as trouble:
            return Finding(requirement, Outcome.UNKNOWN, trouble.reason, str(trouble))

    async def _discovery(self) -> Discovery:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(self.groups))
        self.discovery = await self._reading
        return self.discovery

    async def _custom_resource(self, crd: CustomResource) -> Finding:
        discovery = await self._discovery()
        known = self._former.finding(crd) if self._former is not None else None
        if known is not None and self._former is not None and self._former.discovery is discovery:
            return known
        if known is not None and known.reason == "BeingDeleted":
            still = await self._confirm(crd)  # which does without the schemas that an explanation has to read
            if still.outcome is Outcome.MISSING:
                return still
        if discovery.serves(crd.group, crd.version, crd.plural):
            return await self._confirm(crd) if crd.name in self._changed else Finding(crd, Outcome.MET)
        if discovery.is_stale(crd.group, crd.version):
            service = await self._api_service(crd)
            return Finding(crd, Outcome.UNKNOWN, "Stale", f"the API server cannot ask {service}")
        return await self._explain(crd)

    async def _confirm(self, crd: CustomResource) -> Finding:
        """A CRD that discovery serves, unless the object itself says already that it soon will not."""
        try:
            found = await self._client.get_metadata(f"{CRDS}/{crd.name}")
        except NotFound as trouble:
            return _missing(crd, "NotInstalled", "not installed") if trouble.kind_known else Finding(crd, Outcome.MET)
        except AccessError:
            return Finding(crd, Outcome.MET)
        if "deletionTimestamp" in found["metadata"]:
            return _missing(crd, "BeingDeleted", "being deleted")
        if found["metadata"].get("generation", 1) > 1:  # its versions may be others than those that were served first
            explained = await self._explain(crd)
            return explained if explained.reason == "VersionNotServed" else Finding(crd, Outcome.MET)
        return Finding(crd, Outcome.MET)

    async def _explain(self, crd: CustomResource) -> Finding:
        """Why discovery lacks a CRD, which may turn out to be no fault of the CRD."""
        try:
            found = await read_definition(self._client, crd.name)
        except NotFound as absent:
            if not absent.kind_known:
                raise  # something else answered than what holds the CRDs
            return _missing(crd, "NotInstalled", "not installed")
        if found.being_deleted:
            return _missing(crd, "BeingDeleted", "being deleted")
        if crd.version not in found.served:
            detail = f"installed, but serves {', '.join(found.served) or 'no version'}, not {crd.version}"
            return _missing(crd, "VersionNotServed", detail)
        trouble = _not_established(found.conditions)
        if trouble:
            detail = f"installed, but not Established{trouble}"
            return Finding(crd, Outcome.MISSING, "NotEstablished", detail, passing=trouble == YET)
        return Finding(crd, Outcome.UNKNOWN, NOT_DISCOVERED)

    async def hidden(self, crd: CustomResource) -> Finding:
        """An Established CRD that discovery does not come to list."""
        service = await self._api_service(crd)
        detail = f"Established, but the API server's discovery does not list it; look at {service}"
        return Finding(crd, Outcome.UNKNOWN, NOT_DISCOVERED, detail)

    async def _device_class(self, device_class: DeviceClass) -> Finding:
        path = f"/apis/{device_class.group}/{device_class.version}/{device_class.plural}/{device_class.name}"
        try:
            found = await self._client.get_metadata(path)
        except NotFound as trouble:
            if trouble.kind_known:
                return _missing(device_class, "NotFound", "not found")
            return _missing(device_class, "ApiNotServed", await self._no_resource_api(device_class))
        if "deletionTimestamp" in found["metadata"]:
            return _missing(device_class, "BeingDeleted", "being deleted")
        return Finding(device_class, Outcome.MET)

    async def _no_resource_api(self, device_class: DeviceClass) -> str:
        wanted = f"{device_class.group}/{device_class.version}"
        served = (await self._discovery()).versions(device_class.group, device_class.plural)
        versions = f"only {', '.join(served)}" if served else "no version of it"
        release = (await self._client.get("/version")).get("gitVersion", "an unknown version")
        return f"{wanted} is not served ({versions}); Kubernetes 1.34 or newer serves it, this one is {release}"

    async def _api_service(self, crd: CustomResource) -> str:
        """Names the APIService of a group-version, with the reason why it is unavailable where that can be read."""
        name = f"{crd.version}.{crd.group}"
        try:
            found = await self._client.get(f"{API_SERVICES}/{name}")
        except AccessError:
            return f"APIService {name}"
        for condition in (found.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "Available" and condition.get("status") != "True":
                return f"APIService {name} ({one_line(condition.get('reason', ''))})"
        return f"APIService {name}"


def _missing(requirement: Requirement, reason: str, detail: str) -> Finding:
    return Finding(requirement, Outcome.MISSING, reason, detail)


def _not_established(conditions: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a CRD is not Established, in its own words after a colon; `yet` where it will be, '' when it is."""
    if conditions.get("Established", {}).get("status") == "True":
        return ""
    for name in ("NamesAccepted", "Established"):
        condition = conditions.get(name)
        if condition is not None and condition.get("status") == "False" and condition.get("reason") != "Installing":
            return f": {condition.get('reason', '')}: {one_line(condition.get('message', ''))}"
    return YET
