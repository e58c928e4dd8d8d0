"""What may be done on a cluster: declared where it is done, rendered as Roles, and proved to be enough and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from functions.clusters import API_VERSION, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFINITIONS: Final = "customresourcedefinitions"
DEFINITIONS_GROUP: Final = "apiextensions.k8s.io"
_GROUP: Final = API_VERSION.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Right:
    """What may be done with the objects of one resource.

    Attributes:
        group: The API group; empty for the core one.
        resource: The plural, with the subresource behind a slash.
        verbs: As RBAC knows them.
        names: Of the objects; empty means any.
        namespace: In which alone; empty for cluster-scoped resources, or for all namespaces.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespace: str = ""


class Atom(NamedTuple):
    """One verb on one object, or on all of a resource where there is no name."""

    namespace: str
    group: str
    resource: str
    name: str
    verb: str


def atoms(rights: Iterable[Right]) -> frozenset[Atom]:
    """The rights taken apart, without what another of them allows anyway."""
    apart = {
        Atom(each.namespace, each.group, each.resource, name, verb)
        for each in rights
        for name in each.names or ("",)
        for verb in each.verbs
    }
    return frozenset(each for each in apart if not each.name or each._replace(name="") not in apart)


def _clusters(*verbs: str, subresource: str = "") -> Right:
    return Right(_GROUP, f"inferenceclusters{subresource}", verbs)


# On the hub.
GET_CLUSTERS: Final = (_clusters("get"),)
READ_CLUSTERS: Final = (
    *GET_CLUSTERS,
    # Whether a 404 means that the definition itself is not there.
    Right(DEFINITIONS_GROUP, DEFINITIONS, ("get",), (f"inferenceclusters.{_GROUP}",)),
)
LIST_CLUSTERS: Final = (*READ_CLUSTERS, _clusters("list"))
WRITE_STATUS: Final = (_clusters("patch", subresource="/status"),)
WRITE_FINALIZERS: Final = (_clusters("patch"),)
READ_KUBECONFIGS: Final = (Right("", "secrets", ("get",), namespace=SYSTEM_NAMESPACE),)
LIST_KUBECONFIGS: Final = (Right("", "secrets", ("get", "list"), namespace=SYSTEM_NAMESPACE),)
LIST_INFERENCE_GATEWAYS: Final = (
    Right(_GROUP, "inferencegateways", ("list",)),
    Right(DEFINITIONS_GROUP, DEFINITIONS, ("get",), (f"inferencegateways.{_GROUP}",)),
)
REVIEW_TOKENS: Final = (Right("authentication.k8s.io", "tokenreviews", ("create",)),)
"""Where callers have to show who they are."""
TELL: Final = (Right("", "events", ("create",), namespace="default"),)
"""Events about a cluster-scoped object are in namespace `default`."""
