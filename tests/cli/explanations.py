"""Explanations made by hand, one for each way in which the objects of an InferenceCluster can stand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from functions.cli.formats.explanation import ExplainReport, Trouble, cleaned
from functions.compose.explained import Explained, ExplainedSet, Standing
from functions.compose.ownership import hand_over_command
from functions.compose.sets import COMPOSITIONS
from functions.conditions import Condition, Status
from tests.compose.stage import step_of

if TYPE_CHECKING:
    from functions.compose.step import Composition

NOW = datetime(2026, 12, 1, 4, 0, tzinfo=UTC)
EARLIER = "2026-12-01T03:57:00Z"
GATEWAY, QUEUES, MODELEXPRESS = COMPOSITIONS


def stands(composition: Composition, key: str, standing: Standing, **more: Any) -> Explained:
    return Explained(step=step_of(composition, key), standing=standing, **more)


def condition(type_: str, status: Status, reason: str) -> Condition:
    return Condition(type=type_, status=status, reason=reason, last_transition_time=EARLIER)


def of_set(
    composition: Composition, status: Status, reason: str, *found: Explained, left_out: tuple[str, ...] = ()
) -> ExplainedSet:
    return ExplainedSet(
        composition=composition,
        condition=condition(composition.condition, status, reason),
        objects=found,
        left_out=left_out,
    )


def report(*sets: ExplainedSet, **more: Any) -> ExplainReport:
    known: dict[str, Any] = {
        "cluster": "gpu-1",
        "now": NOW,
        "kubectl": "kubectl --context hub",
        "context": "hub",
        "server": "https://hub.example:6443",
        "stack": "Dynamo",
        "target": "https://gpu-1.example:6443",
        "secret": "Secret modelplane-system/gpu-1, key kubeconfig",
        "sets": cleaned(sets),
    }
    return ExplainReport(**(known | more))


CLASS = "GatewayClass envoy"
ISSUER = "Issuer modelplane-selfsigned"
CA = "Certificate modelplane-cluster-ca"
CA_ISSUER = "Issuer modelplane-cluster-ca"
BUNDLE = "Bundle modelplane-cluster-ca"
CLIENT_CAS = "ConfigMap modelplane-inference-gateway-cas"
POLICY = "ClientTrafficPolicy cluster-gateway-client-auth"
GATEWAY_KEY = "Gateway cluster-gateway"
NAMESPACE = "Namespace modelplane-system"
ROOT, QUEUE = "Queue modelplane-root", "Queue modelplane"
SERVICE = "Service modelexpress-server"
DEPLOYMENT = "Deployment modelexpress-server"
CERT_MANAGER = "CRD certificates.cert-manager.io serving v1: not installed"
NO_CA = "no InferenceGateway has published a client CA"
HELD = "is being deleted, held by finalizer gateway.envoyproxy.io/gateway"
UNREACHABLE = "https://gpu-1.example:6443 refused the connection"
FORBIDDEN = (
    'user "jane" has no right to get queues.scheduling.run.ai (GET /apis/scheduling.run.ai/v2/queues/modelplane-root)'
)
NO_SECRET = (
    'user "jane" has no right to get secrets in namespace modelplane-system '
    "(GET /api/v1/namespaces/modelplane-system/secrets/gpu-1)"
)
HAND_OVER = hand_over_command(step_of(GATEWAY, CLASS))
HAND_OVER_POLICY = hand_over_command(step_of(GATEWAY, POLICY))


def waits(composition: Composition, key: str, cause: str, detail: str = "", since: str = EARLIER) -> Explained:
    return stands(composition, key, Standing.WAITING, waits_for=cause, detail=detail, since=since, next="apply")


REPORTS = {
    "ready": report(
        of_set(
            QUEUES,
            Status.TRUE,
            "Applied",
            *(stands(QUEUES, each, Standing.READY, applied=True) for each in (ROOT, QUEUE)),
        )
    ),
    "waiting": report(
        of_set(
            GATEWAY,
            Status.FALSE,
            "WaitingForRequirements",
            stands(GATEWAY, NAMESPACE, Standing.READY, applied=True),
            stands(
                GATEWAY,
                CLASS,
                Standing.NOT_READY,
                applied=True,
                waits_for=CLASS,
                detail="Accepted is Unknown, Pending: Waiting for controller",
                since="2026-12-01T01:00:00Z",
            ),
            waits(GATEWAY, ISSUER, "cert-manager", CERT_MANAGER),
            waits(GATEWAY, CA, "cert-manager", CERT_MANAGER),
            waits(GATEWAY, CA_ISSUER, "Certificate modelplane-system/modelplane-cluster-ca", since=""),
            waits(GATEWAY, CLIENT_CAS, "a client CA", NO_CA, since=""),
            waits(GATEWAY, POLICY, "a client CA", NO_CA, since=""),
            waits(
                GATEWAY,
                GATEWAY_KEY,
                "ai-gateway-crds",
                "CRD aigatewayroutes.aigateway.envoyproxy.io serving v1alpha1: not installed; then gaie-crds",
            ),
            left_out=("client CA of InferenceGateway eu: it expired on 2026-11-30T00:00:00Z",),
        ),
        of_set(
            QUEUES,
            Status.TRUE,
            "Applied",
            stands(QUEUES, ROOT, Standing.DUE, waits_for=ROOT, next="apply"),
            stands(
                QUEUES, QUEUE, Standing.DUE, waits_for=QUEUE, next="put right", detail="differs in spec.parentQueue"
            ),
        ),
        replace(
            of_set(
                MODELEXPRESS,
                Status.FALSE,
                "",
                stands(
                    MODELEXPRESS,
                    SERVICE,
                    Standing.WAITING,
                    waits_for="Service default/modelexpress-server",
                    detail="is being deleted, held by finalizer example.com/hold",
                    since=EARLIER,
                    next="apply",
                ),
            ),
            condition=None,
        ),
    ),
    "conflict": report(
        of_set(
            GATEWAY,
            Status.FALSE,
            "Conflict",
            stands(
                GATEWAY,
                CLASS,
                Standing.CONFLICT,
                detail=f"it was made by helm; delete it, or hand it over on the target: {HAND_OVER}",
                command=HAND_OVER,
            ),
            stands(
                GATEWAY,
                POLICY,
                Standing.CONFLICT,
                detail=f"it was made by kubectl; delete it, or hand it over on the target: {HAND_OVER_POLICY}",
                command=HAND_OVER_POLICY,
            ),
        ),
        of_set(
            QUEUES,
            Status.FALSE,
            "Refused",
            stands(
                QUEUES,
                ROOT,
                Standing.REFUSED,
                next="apply",
                detail='admission webhook "queues.example" denied the request: no queue without an owner',
                since=EARLIER,
            ),
            waits(QUEUES, QUEUE, ROOT),
        ),
    ),
    "deleting": report(
        of_set(
            GATEWAY,
            Status.FALSE,
            "TeardownBlocked",
            stands(GATEWAY, GATEWAY_KEY, Standing.GONE),
            stands(
                GATEWAY,
                POLICY,
                Standing.BLOCKED,
                applied=True,
                since=EARLIER,
                detail=f"{HELD} since {EARLIER}; is envoy-gateway, which has to let it go, running?",
            ),
            replace(waits(GATEWAY, CLIENT_CAS, str(step_of(GATEWAY, POLICY))), applied=True, next="delete"),
            stands(GATEWAY, CLASS, Standing.KEPT, applied=True, detail="Gateway default/theirs uses it"),
            stands(GATEWAY, NAMESPACE, Standing.KEPT, detail="it is not ours: it was made by helm"),
        ),
        of_set(
            QUEUES,
            Status.FALSE,
            "Removing",
            stands(QUEUES, QUEUE, Standing.REMOVING, applied=True, detail=HELD, since="2026-12-01T03:59:48Z"),
            replace(waits(QUEUES, ROOT, QUEUE, since="2026-12-01T03:59:48Z"), next="delete"),
        ),
        of_set(
            MODELEXPRESS,
            Status.TRUE,
            "Applied",
            stands(MODELEXPRESS, DEPLOYMENT, Standing.DUE, applied=True, next="delete"),
            replace(waits(MODELEXPRESS, SERVICE, str(step_of(MODELEXPRESS, DEPLOYMENT)), since=""), next="delete"),
        ),
        deleting_since="2026-11-29T02:30:00Z",
        finalizers=("modelplane.ai/gateway", "modelplane.ai/queues", "modelplane.ai/modelexpress"),
    ),
    "gone": report(
        of_set(
            QUEUES, Status.FALSE, "Removed", stands(QUEUES, QUEUE, Standing.GONE), stands(QUEUES, ROOT, Standing.GONE)
        ),
        deleting_since=EARLIER,
        finalizers=("example.com/hold",),
    ),
    "forbidden": report(
        of_set(
            QUEUES,
            Status.TRUE,
            "Applied",
            stands(QUEUES, ROOT, Standing.UNKNOWN, detail=FORBIDDEN, trouble="Forbidden"),
            stands(QUEUES, QUEUE, Standing.READY, applied=True),
        )
    ),
    "unreachable": report(
        of_set(
            QUEUES,
            Status.UNKNOWN,
            "Unreachable",
            *(
                stands(QUEUES, each, Standing.UNKNOWN, detail=UNREACHABLE, trouble="Unreachable")
                for each in (ROOT, QUEUE)
            ),
        )
    ),
    "no-secret": report(
        of_set(
            QUEUES,
            Status.TRUE,
            "Applied",
            *(
                stands(QUEUES, each, Standing.UNKNOWN, detail=NO_SECRET, trouble="Forbidden", at_hub=True)
                for each in (ROOT, QUEUE)
            ),
        ),
        target="",
    ),
    "no-hub": report(
        stack="",
        target="",
        secret="",
        trouble=Trouble(reason="Unreachable", detail="https://hub.example:6443 refused the connection"),
    ),
}
