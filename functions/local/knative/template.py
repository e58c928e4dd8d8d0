"""What a container of a pod template says, as a process is started: command, environment, probe, and where volumes are.

Nothing here starts or reads anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from functions.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Manifest = Mapping[str, Any]

OWN_IMAGE: Final = "serving-stack"
"""Part of the last component of the name of an image that holds this project."""
LOCAL_IMAGE: Final = "local/"
"""What the name of an image begins with that stands for the programs of this machine."""
_KNATIVE: Final = re.compile(r"knative\.dev/eventing/cmd/([\w/]+)")
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")
_LABEL: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
# Those built on Knative's shared main elect a leader, and a killed one would be waited for for 70 seconds.
_ELECTING: Final = frozenset(
    {"controller", "webhook", "mtchannel_broker", "in_memory/channel_controller", "in_memory/channel_dispatcher"}
)


@dataclass(frozen=True, slots=True)
class Images:
    """Which program stands for which image.

    Attributes:
        knative: The programs of Knative Eventing, by the path of their package below cmd/.
        own: The command of this project.
    """

    knative: Mapping[str, Path]
    own: tuple[str, ...]

    def command(self, container: Manifest) -> list[str] | None:
        """The command of a container, with references to its environment as they stand; None for a strange image."""
        image: str = container.get("image", "")
        arguments = list(container.get("args", ()))
        found = _KNATIVE.search(image)
        if found is not None:
            program = self.knative.get(found[1])
            disable = ["-disable-ha"] if found[1] in _ELECTING else []
            return None if program is None else [str(program), *disable, *arguments]
        command = list(container.get("command", ()))
        if OWN_IMAGE in image.rpartition("/")[2]:
            entry = command or [OWN_IMAGE]
            if entry[0].rpartition("/")[2] == OWN_IMAGE:
                entry = [*self.own, *entry[1:]]
            return [*entry, *(arguments if command or arguments else ["serve"])]
        return [*command, *arguments] if image.startswith(LOCAL_IMAGE) and command else None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a pod may ask to be told of itself.

    Attributes:
        name: Of the pod.
        namespace: Of the pod.
        address: Its IP address.
        account: Its ServiceAccount.
        metadata: That of the template.
    """

    name: str
    namespace: str
    address: str
    account: str
    metadata: Manifest

    def field(self, path: str) -> str:
        """What a fieldRef stands for.

        Raises:
            LocalError: It is none of those that are known here.
        """
        known = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.name,
            "spec.serviceAccountName": self.account,
            "spec.nodeName": "local",
            "status.podIP": self.address,
            "status.podIPs": self.address,
            "status.hostIP": self.address,
        }
        if path in known:
            return known[path]
        if (found := _LABEL.fullmatch(path)) is not None:
            return str(self.metadata.get(found[1], {}).get(found[2], ""))
        raise LocalError(f"fieldRef {path} is not known here")


def sources(container: Manifest) -> set[tuple[str, str, bool]]:
    """The ConfigMaps and Secrets that the environment comes from: kind, name, and whether it may be missing."""
    found = set()
    for each in container.get("envFrom", ()):
        for kind, reference in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference in each:
                found.add((kind, each[reference]["name"], bool(each[reference].get("optional"))))
    for each in container.get("env", ()):
        for kind, reference in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
            if reference in each.get("valueFrom", {}):
                chosen = each["valueFrom"][reference]
                found.add((kind, chosen["name"], bool(chosen.get("optional"))))
    return found


def environment(container: Manifest, facts: Facts, data: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, str]:
    """The environment that a container asks for, references resolved.

    Args:
        container: Of the template.
        facts: What the pod is.
        data: The content of what `sources` names, by kind and name.

    Raises:
        LocalError: It refers to a field or to a key that is not there.
    """
    result: dict[str, str] = {}
    for each in container.get("envFrom", ()):
        for kind, reference in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference in each:
                content = data.get((kind, each[reference]["name"]), {})
                result |= {each.get("prefix", "") + name: value for name, value in content.items()}
    for each in container.get("env", ()):
        value = _value(each, facts, data)
        if value is not None:
            result[each["name"]] = expand(value, result)
    return result


def _value(variable: Manifest, facts: Facts, data: Mapping[tuple[str, str], Mapping[str, str]]) -> str | None:
    source = variable.get("valueFrom", {})
    if "fieldRef" in source:
        return facts.field(source["fieldRef"]["fieldPath"])
    for kind, reference in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if reference in source:
            chosen = source[reference]
            content = data.get((kind, chosen["name"]), {})
            if chosen["key"] in content:
                return content[chosen["key"]]
            if chosen.get("optional"):
                return None
            raise LocalError(f"{kind} {chosen['name']} has no key {chosen['key']}")
    return str(variable.get("value", ""))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` replaced as Kubernetes does it: those that are not known stay, and `$$` is a dollar sign."""

    def replaced(found: re.Match[str]) -> str:
        return "$" if found[1] is None else variables.get(found[1], found[0])

    return _REFERENCE.sub(replaced, text)


def mounts(template: Manifest, container: Manifest) -> dict[str, Manifest]:
    """The volumes of a container, by the path where it wants them."""
    volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", ())}
    return {
        mount["mountPath"].rstrip("/"): volumes[mount["name"]]
        for mount in container.get("volumeMounts", ())
        if mount["name"] in volumes
    }


def relocate(text: str, places: Mapping[str, Path]) -> str:
    """Text in which each path at or below a mount path leads to the directory that stands for it.

    A process here sees the files of the machine, where the mount path is something else or is not there.
    """
    for path, place in places.items():
        # As a whole path: not the end of a longer one, of a URL or of a word.
        escaped = str(place).replace("\\", r"\\")
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", escaped, text)
    return text


@dataclass(frozen=True, slots=True)
class Probe:
    """How to ask a container whether it is ready.

    Attributes:
        port: Its port.
        url: What to GET, with `{address}` for its address; empty where a connection is enough.
        headers: Sent along.
    """

    port: int
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()


def probe(container: Manifest) -> Probe | None:
    """The readiness probe of a container; None where it has none that could be asked from outside."""
    said = container.get("readinessProbe", {})
    if "httpGet" in said:
        get = said["httpGet"]
        number = port(container, get["port"])
        headers = tuple((each["name"], each["value"]) for each in get.get("httpHeaders", ()))
        path = "/" + get.get("path", "").lstrip("/")
        return Probe(number, f"{get.get('scheme', 'HTTP').lower()}://{{address}}:{number}{path}", headers)
    if "tcpSocket" in said:
        return Probe(port(container, said["tcpSocket"]["port"]))
    return None


def port(container: Manifest, named: int | str) -> int:
    """The number of a port that may be told by its name.

    Raises:
        LocalError: The container has no port of that name.
    """
    if isinstance(named, int) or named.isdigit():
        return int(named)
    for each in container.get("ports", ()):
        if each.get("name") == named:
            return int(each["containerPort"])
    raise LocalError(f"container {container.get('name')} has no port {named}")


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether the labels have all that a Service selects by, which must be something."""
    return bool(selector) and selector.items() <= labels.items()


def paths(text: Sequence[str], places: Mapping[str, Path], variables: Mapping[str, str]) -> list[str]:
    """A command with its references expanded and its paths relocated."""
    return [relocate(expand(each, variables), places) for each in text]
