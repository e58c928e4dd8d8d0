"""Users of the control plane with lesser rights than the admin's, by RBAC; for the tests of what happens without."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING, Any, Final

from functions.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from functions.local.api import Answer, Api

    Rule = Mapping[str, Sequence[str]]

_RBAC: Final = "rbac.authorization.k8s.io"
_SERVICE_ACCOUNTS: Final = "/api/v1/namespaces/default/serviceaccounts"
_WITHIN: Final = 10.0


def service_account_token(api: Api, name: str, *, seconds: int) -> str:
    """A new token of the ServiceAccount `name` in namespace default, which is made if it is not there.

    Args:
        api: As an admin.
        name: The ServiceAccount.
        seconds: How long the token is valid; the API server takes no less than 600.
    """
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    _check(api.apply(f"{_SERVICE_ACCOUNTS}/{name}", account))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
    answer = _check(api.request("POST", f"{_SERVICE_ACCOUNTS}/{name}/token", request))
    token: str = answer.body["status"]["token"]
    return token


def grant(api: Api, name: str, user: str, rules: Sequence[Rule]) -> None:
    """Give a user exactly these rights in the whole cluster, and wait until the API server heeds them.

    Args:
        api: As an admin.
        name: Of the ClusterRole and its binding; those that exist are replaced.
        user: As the API server calls them.
        rules: PolicyRules, such as `{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}`; may be empty.
    """
    role = {"kind": "ClusterRole", "rules": [dict(rule) for rule in rules]}
    binding = {
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }
    for path, manifest in (("clusterroles", role), ("clusterrolebindings", binding)):
        whole = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": name}, **manifest}
        _check(api.apply(f"/apis/{_RBAC}/v1/{path}/{name}", whole))
    deadline = time.monotonic() + _WITHIN
    while not all(_allowed(api, user, rule) for rule in rules):
        if time.monotonic() > deadline:
            raise LocalError(f"the API server does not heed ClusterRole {name} for {user}; is each rule complete?")
        time.sleep(0.01)


def _allowed(api: Api, user: str, rule: Rule) -> bool:
    """Whether the user has the first of the rights in the rule, which are granted together."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user}}
    verb = rule["verbs"][0]
    if "nonResourceURLs" in rule:
        asked: dict[str, Any] = {"nonResourceAttributes": {"path": rule["nonResourceURLs"][0], "verb": verb}}
    else:
        resource, _, subresource = rule["resources"][0].partition("/")
        attributes = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource, "verb": verb}
        asked = {"resourceAttributes": attributes | {"name": next(iter(rule.get("resourceNames", ())), "")}}
    review["spec"] = {"user": user, **asked}
    answer = _check(api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review))
    return bool(answer.body["status"]["allowed"])


def _check(answer: Answer) -> Answer:
    if answer.status >= http.client.BAD_REQUEST:
        raise LocalError(f"the API server answered {answer.status}: {answer.body.get('message', 'no message')}")
    return answer
