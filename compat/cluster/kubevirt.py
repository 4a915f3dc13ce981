"""KubeVirt as its release installs it: the operator's manifests with images of this cluster, and its custom resource."""

import json
import re

from cluster.images import REGISTRY

VERSION = "v1.9.0"
NAMESPACE = "kubevirt"
# The programs of KubeVirt's images that this cluster runs -> the variable by which virt-operator
# learns its image.
IMAGES = {
    "virt-operator": "VIRT_OPERATOR_IMAGE",
    "virt-api": "VIRT_API_IMAGE",
    "virt-controller": "VIRT_CONTROLLER_IMAGE",
    "virt-handler": "VIRT_HANDLER_IMAGE",
    "virt-exportproxy": "VIRT_EXPORTPROXY_IMAGE",
}
# Made of each launcher's program, as its node has it.
SIDECAR_SHIM = {"sidecar-shim": "SIDECAR_SHIM_IMAGE"}
# virt-operator wants a name for these too. Nothing here starts them.
UNUSED = {
    "virt-exportserver": "VIRT_EXPORTSERVER_IMAGE",
    "virt-synchronization-controller": "VIRT_SYNCHRONIZATIONCONTROLLER_IMAGE",
    "libguestfs-tools": "GS_IMAGE",
    "pr-helper": "PR_HELPER_IMAGE",
    "virt-template-apiserver": "VIRT_TEMPLATE_APISERVER_IMAGE",
    "virt-template-controller": "VIRT_TEMPLATE_CONTROLLER_IMAGE",
}
SETTINGS = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
    "spec": {
        "certificateRotateStrategy": {},
        "imagePullPolicy": "IfNotPresent",
        "infra": {"replicas": 1},
        "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
        "configuration": {
            "vmRolloutStrategy": "LiveUpdate",
            "imagePullPolicy": "IfNotPresent",
            "commonInstancetypesDeployment": {"enabled": False},
            "evictionStrategy": "LiveMigrate",
            "developerConfiguration": {
                "useEmulation": True,
                "featureGates": ["Sidecar", "HotplugVolumes", "HostDisk", "VMStatsCollector"],
                "disabledFeatureGates": ["Template"],
                "logVerbosity": {"virtHandler": 3, "virtLauncher": 3, "virtController": 3},
            },
        },
    },
}

# A right that CDI's installation gives to everybody. virt-api asks for CDI's configuration at each
# memory dump: it does without CDI, but not without the right to ask.
CDI_CONFIG_READER = "cdi.kubevirt.io:config-reader"
RBAC = "rbac.authorization.k8s.io"
CDI_CONFIG_READERS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": CDI_CONFIG_READER},
            "rules": [{"apiGroups": ["cdi.kubevirt.io"], "resources": ["cdiconfigs"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": CDI_CONFIG_READER},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": CDI_CONFIG_READER},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}],
        },
    ],
}


def image(name, tag=VERSION):
    return f"{REGISTRY}/kubevirt/{name}:{tag}"


def manifests(folder, launcher_tag):
    """The release's manifests, as text for `kubectl apply`; the Deployment is ours, the template has none."""
    template = folder.read("manifests/release/kubevirt-operator.yaml.in")
    generated = re.compile(r'\{\{index \.GeneratedManifests "([^"]+)"\}\}')
    text = generated.sub(lambda found: folder.read(f"manifests/generated/{found[1]}"), template)
    text = text[: text.index("apiVersion: apps/v1\nkind: Deployment")]
    return text.replace("{{.Namespace}}", NAMESPACE) + json.dumps(deployment(launcher_tag))


def deployment(launcher_tag):
    labels = {"kubevirt.io": "virt-operator"}
    variables = {variable: image(name) for name, variable in {**IMAGES, **SIDECAR_SHIM, **UNUSED}.items()}
    variables.update(
        {"VIRT_LAUNCHER_IMAGE": image("virt-launcher", launcher_tag), "KUBEVIRT_VERSION": VERSION}
    )
    container = {
        "name": "virt-operator",
        "image": image("virt-operator"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["virt-operator"],
        "args": ["--port", "8443", "-v", "2"],
        "ports": [{"name": "metrics", "containerPort": 8443}, {"name": "webhooks", "containerPort": 8444}],
        "readinessProbe": {
            "httpGet": {"scheme": "HTTPS", "port": 8443, "path": "/metrics"},
            "timeoutSeconds": 10,
        },
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            {
                "name": "WATCH_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}},
            },
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "150Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "certificates", "mountPath": "/etc/virt-operator/certificates", "readOnly": True},
            {"name": "profile-data", "mountPath": "/profile-data"},
        ],
    }
    pod = {
        "serviceAccountName": "kubevirt-operator",
        "priorityClassName": "kubevirt-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "runAsUser": 1001,
        },
        "containers": [container],
        "volumes": [
            {"name": "certificates", "secret": {"secretName": "kubevirt-operator-certs", "optional": True}},
            {"name": "profile-data", "emptyDir": {}},
        ],
    }
    pod_labels = {**labels, "name": "virt-operator", "prometheus.kubevirt.io": "true"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "virt-operator", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": pod_labels}, "spec": pod},
        },
    }
