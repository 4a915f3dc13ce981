"""The objects of the API server: store, history for watches, selectors, patches. No I/O."""

import copy
import re
import threading
import time
import uuid

KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "events": "Event",
    "namespaces": "Namespace",
    "services": "Service",
    "leases": "Lease",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "customresourcedefinitions": "CustomResourceDefinition",
    "virtualmachineinstances": "VirtualMachineInstance",
    "virtualmachines": "VirtualMachine",
    "virtualmachineinstancemigrations": "VirtualMachineInstanceMigration",
    "kubevirts": "KubeVirt",
    "virtualmachinebackups": "VirtualMachineBackup",
    "virtualmachinebackuptrackers": "VirtualMachineBackupTracker",
    "plugins": "Plugin",
}
CLUSTER_SCOPED = {"nodes", "namespaces", "customresourcedefinitions", "persistentvolumes", "plugins"}


def kind_of(resource):
    return KINDS.get(resource) or resource[:-1].capitalize()


def timestamp():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class ApiFailure(Exception):
    """An answer other than success, as Kubernetes' Status object has it."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


# ---- selectors -----------------------------------------------------------------------------------


def label_selector(text):
    """Tests that an object's labels must all pass."""
    tests = []
    for part in re.findall(r"[^,(]+(?:\([^)]*\))?", text or ""):
        match = re.match(r"^(!?)([^\s!=]+)\s*(?:(==|=|!=|in|notin)\s*(.*))?$", part.strip())
        if not match:
            raise ApiFailure(400, "BadRequest", "label selector " + part)
        tests.append(label_test(*match.groups()))
    return tests


def label_test(negation, key, operator, value):
    if operator in ("in", "notin"):
        values = [v.strip() for v in value.strip("() ").split(",")]
        return lambda labels: (labels.get(key) in values) == (operator == "in")
    if operator:
        value = value.strip()
        return lambda labels: (labels.get(key) == value) == (operator != "!=")
    return lambda labels: (key in labels) != bool(negation)


def field_selector(text):
    """(path, value, negated) triples."""
    out = []
    for part in filter(None, (text or "").split(",")):
        path, value = re.split(r"!=|==|=", part, maxsplit=1)
        out.append((path.split("."), value, "!=" in part))
    return out


def selected(labels, fields, obj):
    if obj is None:
        return False
    have = (obj.get("metadata") or {}).get("labels") or {}
    if not all(test(have) for test in labels):
        return False
    for path, value, negated in fields:
        current = obj
        for name in path:
            current = current.get(name) if isinstance(current, dict) else None
        if ((current or "") == value) == negated:
            return False
    return True


# ---- patches -------------------------------------------------------------------------------------


def merge_patch(base, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    out = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def json_patch(obj, operations):
    """RFC 6902: test, add, replace, remove. Changes and returns `obj`."""
    for operation in operations:
        try:
            apply_operation(obj, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ApiFailure(422, "Invalid", f"{operation['op']} {operation['path']}: {error!r}") from None
    return obj


def apply_operation(obj, operation):
    op, path = operation["op"], operation["path"]
    names = [name.replace("~1", "/").replace("~0", "~") for name in path.split("/")[1:]]
    parent = obj
    for name in names[:-1]:
        parent = parent[int(name)] if isinstance(parent, list) else parent[name]
    last = names[-1]
    if op == "test":
        have = parent[int(last)] if isinstance(parent, list) else parent.get(last)
        want = operation.get("value")
        if have != want and (have or want):
            raise ApiFailure(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: test of " + path,
            )
    elif op == "add" and isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), operation["value"])
    elif op in ("add", "replace"):
        if isinstance(parent, list):
            parent[int(last)] = operation["value"]
        elif op == "replace" and last not in parent:
            raise ApiFailure(422, "Invalid", "no such path: " + path)
        else:
            parent[last] = operation["value"]
    elif op == "remove":
        parent.pop(int(last) if isinstance(parent, list) else last)
    else:
        raise ApiFailure(400, "BadRequest", "operation " + op)


# ---- the store -----------------------------------------------------------------------------------


def without_version(obj):
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}


class Store:
    """All objects, by (group, resource) and (namespace, name). Callers hold `changed` around every method."""

    def __init__(self):
        self.changed = threading.Condition()
        self.objects = {}
        self.history = []  # (version, key, type, old object, new object)
        self.version = 1000
        self.conflicts = {}  # (key, namespace, name) -> the phase whose next writer comes too late

    def commit(self, key, event, old, new):
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, key, event, old, copy.deepcopy(new)))
        self.changed.notify_all()

    def list(self, key, namespace, labels, fields):
        found = self.objects.get(key, {}).items()
        return [
            copy.deepcopy(o)
            for (ns, _), o in found
            if (not namespace or ns == namespace) and selected(labels, fields, o)
        ]

    def get(self, key, namespace, name):
        obj = self.objects.get(key, {}).get((namespace, name))
        if obj is None:
            raise ApiFailure(404, "NotFound", f'{key[1]} "{name}" not found')
        return obj

    def create(self, key, api_version, namespace, obj):
        meta = obj.setdefault("metadata", {})
        if not meta.get("name"):
            meta["name"] = meta.get("generateName", "") + uuid.uuid4().hex[:8]
        if namespace:
            meta["namespace"] = namespace
        objects = self.objects.setdefault(key, {})
        if (namespace, meta["name"]) in objects:
            raise ApiFailure(409, "AlreadyExists", f'{key[1]} "{meta["name"]}" already exists')
        obj.setdefault("apiVersion", api_version)
        obj.setdefault("kind", kind_of(key[1]))
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", timestamp())
        meta.setdefault("generation", 1)
        objects[(namespace, meta["name"])] = obj
        self.commit(key, "ADDED", None, obj)
        return obj

    def interfere(self, key, namespace, name, phase):
        """Another client changes the object just before the next update that brings it into that phase."""
        self.conflicts[key, namespace, name] = phase

    def change_by_another(self, key, namespace, name, obj):
        phase = (obj.get("status") or {}).get("phase")
        if phase is None or self.conflicts.get((key, namespace, name)) != phase:
            return
        del self.conflicts[key, namespace, name]
        new = copy.deepcopy(self.get(key, namespace, name))
        new["metadata"].setdefault("annotations", {})["compat/changed-before"] = phase
        self.replace(key, namespace, name, new)

    def update(self, key, namespace, name, obj):
        self.change_by_another(key, namespace, name, obj)
        old = self.get(key, namespace, name)
        meta = obj.get("metadata") or {}
        if meta.get("resourceVersion") and meta["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ApiFailure(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {key[1]} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
            )
        if meta.get("uid") not in (None, "", old["metadata"]["uid"]):
            raise ApiFailure(
                409,
                "Conflict",
                f"Precondition failed: UID in precondition: {meta['uid']}, "
                f"UID in object meta: {old['metadata']['uid']}",
            )
        return self.replace(key, namespace, name, obj)

    def patch(self, key, namespace, name, content_type, patch):
        old = self.get(key, namespace, name)
        new = copy.deepcopy(old)
        if content_type == "application/json-patch+json":
            new = json_patch(new, patch)
        elif content_type == "application/apply-patch+yaml":
            raise ApiFailure(415, "UnsupportedMediaType", "server-side apply is not supported")
        else:  # strategic merge patches too: virt-handler sends none that would differ
            new = merge_patch(new, patch)
        if new["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise ApiFailure(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {key[1]} "{name}": the object has been modified',
            )
        return self.replace(key, namespace, name, new)

    def replace(self, key, namespace, name, new):
        old = copy.deepcopy(self.get(key, namespace, name))
        meta = new["metadata"]
        for field in ("uid", "creationTimestamp", "namespace", "name", "deletionTimestamp"):
            if field in old["metadata"]:
                meta[field] = old["metadata"][field]
        new.setdefault("apiVersion", old["apiVersion"])
        new.setdefault("kind", old["kind"])
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self.objects[key][(namespace, name)]
            self.commit(key, "DELETED", old, new)
        elif without_version(new) == without_version(old):
            return old
        else:
            self.objects[key][(namespace, name)] = new
            self.commit(key, "MODIFIED", old, new)
        return new

    def delete(self, key, namespace, name, options):
        old = copy.deepcopy(self.get(key, namespace, name))
        new = copy.deepcopy(old)
        if not new["metadata"].get("finalizers"):
            del self.objects[key][(namespace, name)]
            self.commit(key, "DELETED", old, new)
        elif not new["metadata"].get("deletionTimestamp"):
            new["metadata"]["deletionTimestamp"] = timestamp()
            new["metadata"]["deletionGracePeriodSeconds"] = (options or {}).get("gracePeriodSeconds") or 0
            self.objects[key][(namespace, name)] = new
            self.commit(key, "MODIFIED", old, new)
        return new

    def groups(self):
        """API group -> its versions."""
        versions = {}
        for (group, _), objects in self.objects.items():
            for obj in objects.values():
                if group:
                    versions.setdefault(group, set()).add(obj["apiVersion"].split("/")[1])
        return {group: sorted(found) for group, found in versions.items()}
