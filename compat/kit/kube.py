"""A small client of the API server."""

import functools
import json
import ssl
import time
import urllib.error
import urllib.request

from kit.settings import API_SERVER, CERTIFICATES, CLIENT

KUBEVIRT = "/apis/kubevirt.io/v1"
CONFLICT_RETRIES = 30


class ApiError(Exception):
    def __init__(self, method, path, code, body):
        super().__init__(f"{method} {path}: {code} {body[:300]!r}")
        self.code = code


@functools.cache
def tls():
    """Of a cluster's API server; the kit's own one speaks HTTP."""
    if not API_SERVER.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=f"{CERTIFICATES}/ca.crt")
    context.load_cert_chain(f"{CERTIFICATES}/{CLIENT}.crt", f"{CERTIFICATES}/{CLIENT}.key")
    return context


def open_url(path, timeout, **options):
    request = urllib.request.Request(API_SERVER + path, **options)
    return urllib.request.urlopen(request, timeout=timeout, context=tls())


def call(method, path, body=None, content_type="application/json", timeout=10):
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": content_type}
    try:
        with open_url(path, timeout, data=data, method=method, headers=headers) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        raise ApiError(method, path, error.code, error.read()) from None


def get(path):
    return call("GET", path)


def get_or_none(path):
    try:
        return get(path)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def create(path, obj):
    return call("POST", path, obj)


def delete(path):
    return call("DELETE", path)


def edit(path, change):
    """Reads, changes and writes until nobody was in between, as a controller does. `change` edits its argument."""
    for attempt in range(CONFLICT_RETRIES):
        obj = get(path)
        change(obj)
        try:
            return call("PUT", path, obj)
        except ApiError as error:
            if error.code != 409 or attempt == CONFLICT_RETRIES - 1:
                raise
            time.sleep(0.02)
    return None


def interfere(namespace, name, phase):
    """Has the VMI changed just before virt-handler's next update that brings it into that phase, which is a conflict."""
    where = {"group": "kubevirt.io", "resource": "virtualmachineinstances"}
    call("POST", "/interfere", {**where, "namespace": namespace, "name": name, "phase": phase})


def vmi_path(namespace, name=""):
    return f"{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstances/{name}".rstrip("/")


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# ---- reading a VMI -------------------------------------------------------------------------------


def condition(vmi, kind):
    """The condition of that type; None if the VMI has none."""
    conditions = (vmi.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), None)


def is_true(obj, kind):
    """Whether the object has this condition with the status True."""
    return (condition(obj, kind) or {}).get("status") == "True"


def phase(vmi):
    return (vmi.get("status") or {}).get("phase")
