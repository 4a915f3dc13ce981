"""A generic Kubernetes API server in memory: any group, version and resource, plain HTTP, no authentication.

    python3 -m kit.apiserver ADDRESS:PORT

GET, LIST (label and field selectors), WATCH (bookmarks, sendInitialEvents), POST, PUT, PATCH (JSON patch, merge patch,
strategic as merge), DELETE with finalizers, subresources written like the object itself, optimistic locking by
resourceVersion, discovery, and reviews that always allow. One line a request on standard error.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from kit.apiserver_store import (
    CLUSTER_SCOPED,
    ApiFailure,
    Store,
    field_selector,
    kind_of,
    label_selector,
    selected,
)

BOOKMARK_INTERVAL = 20  # seconds
WATCH_LIMIT = 3600  # seconds, where the request has none

store = Store()


def status_object(failure):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": failure.message,
        "reason": failure.reason,
        "code": failure.code,
    }


def discovery(parts):
    """The answers to what clients ask before their first request; None for any other path."""
    if parts in ([], ["healthz"], ["livez"], ["readyz"]):
        return {}
    if parts == ["version"]:
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.2", "platform": "linux/amd64"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{v}", "version": v} for v in versions],
                "preferredVersion": {"groupVersion": f"{group}/{versions[0]}", "version": versions[0]},
            }
            for group, versions in store.groups().items()
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    return None


def resource_list(group, version):
    resources = [
        {
            "name": resource,
            "singularName": kind_of(resource).lower(),
            "kind": kind_of(resource),
            "namespaced": resource not in CLUSTER_SCOPED,
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        }
        for g, resource in store.objects
        if g == group
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}".strip("/"),
        "resources": resources,
    }


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def reply(self, code, obj):
        data = json.dumps(obj).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not raw:
            return None
        try:
            return json.loads(raw)
        except ValueError:
            content_type = self.headers.get("Content-Type")
            raise ApiFailure(
                415, "UnsupportedMediaType", f"only JSON is supported, not {content_type}"
            ) from None

    def serve(self):
        start, code = time.time(), 200
        try:
            self.route()
        except ApiFailure as failure:
            code = failure.code
            self.reply(code, status_object(failure))
        except (BrokenPipeError, ConnectionResetError):
            code = 499
        milliseconds = 1000 * (time.time() - start)
        print(
            f"{time.strftime('%H:%M:%S')} {self.command} {self.path} {code} {milliseconds:.0f}ms",
            file=sys.stderr,
            flush=True,
        )

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def route(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.split("/") if part]
        with store.changed:
            found = discovery(parts)
        if found is not None:
            return self.reply(200, found)
        if parts[0] == "interfere":
            return self.interfere()
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise ApiFailure(404, "NotFound", "the server could not find the requested resource")
        if not rest:
            with store.changed:
                return self.reply(200, resource_list(group, version))
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        key, name = (group, rest[0]), rest[1] if len(rest) > 1 else ""
        api_version = f"{group}/{version}".strip("/")
        if rest[0].endswith("reviews") and self.command == "POST":
            review = self.body() or {}
            review["status"] = {"allowed": True, "authenticated": True, "user": {"username": "test"}}
            return self.reply(201, review)
        if self.command == "GET":
            return self.read(key, api_version, namespace, name, query)
        return self.write(key, api_version, namespace, name)

    def interfere(self):
        """The kit's own: see Store.interfere. {"group", "resource", "namespace", "name", "phase"}"""
        body = self.body()
        with store.changed:
            store.interfere((body["group"], body["resource"]), body["namespace"], body["name"], body["phase"])
        return self.reply(200, {})

    def read(self, key, api_version, namespace, name, query):
        if name:
            with store.changed:
                return self.reply(200, store.get(key, namespace, name))
        labels, fields = (
            label_selector(query.get("labelSelector")),
            field_selector(query.get("fieldSelector")),
        )
        if query.get("watch") in ("true", "1"):
            return self.watch(key, api_version, namespace, labels, fields, query)
        with store.changed:
            items, version = store.list(key, namespace, labels, fields), store.version
        return self.reply(
            200,
            {
                "kind": kind_of(key[1]) + "List",
                "apiVersion": api_version,
                "metadata": {"resourceVersion": str(version)},
                "items": items,
            },
        )

    def write(self, key, api_version, namespace, name):
        body = self.body()
        with store.changed:
            if self.command == "POST":
                return self.reply(201, store.create(key, api_version, namespace, body))
            if self.command == "PUT":
                return self.reply(200, store.update(key, namespace, name, body))
            if self.command == "PATCH":
                content_type = (self.headers.get("Content-Type") or "").split(";")[0]
                return self.reply(200, store.patch(key, namespace, name, content_type, body))
            return self.reply(200, store.delete(key, namespace, name, body))

    def watch(self, key, api_version, namespace, labels, fields, query):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(event, obj):
            data = json.dumps({"type": event, "object": obj}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def bookmark(version, **metadata):
            send(
                "BOOKMARK",
                {
                    "kind": kind_of(key[1]),
                    "apiVersion": api_version,
                    "metadata": {"resourceVersion": str(version), "creationTimestamp": None, **metadata},
                },
            )

        initial = query.get("sendInitialEvents") == "true"
        with store.changed:
            position, objects, version = self.watch_start(key, namespace, labels, fields, query, initial)
        for obj in objects:
            send("ADDED", obj)
        if initial:
            bookmark(version, annotations={"k8s.io/initial-events-end": "true"})
        deadline = time.time() + float(query.get("timeoutSeconds") or WATCH_LIMIT)
        last_bookmark = time.time()
        while time.time() < deadline:
            with store.changed:
                if position >= len(store.history):
                    store.changed.wait(min(5, max(0.1, deadline - time.time())))
                news, position, version = store.history[position:], len(store.history), store.version
            for _, changed_key, event, old, new in news:
                if changed_key == key and (
                    not namespace or new["metadata"].get("namespace", "") == namespace
                ):
                    seen_as = visible_event(
                        event, selected(labels, fields, old), selected(labels, fields, new)
                    )
                    if seen_as:
                        send(seen_as, new)
            if query.get("allowWatchBookmarks") == "true" and time.time() - last_bookmark > BOOKMARK_INTERVAL:
                bookmark(version)
                last_bookmark = time.time()
        self.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def watch_start(key, namespace, labels, fields, query, initial):
        """Where in the history a watch begins, and the objects that it sends before."""
        wanted = query.get("resourceVersion") or ""
        if initial or wanted in ("", "0"):
            return len(store.history), store.list(key, namespace, labels, fields), store.version
        later = (i for i, change in enumerate(store.history) if change[0] > int(wanted))
        return next(later, len(store.history)), [], store.version


def visible_event(event, was_selected, is_selected):
    """What a watch with selectors sees of a change; None if nothing."""
    if event == "DELETED":
        return "DELETED" if was_selected or is_selected else None
    if is_selected:
        return "MODIFIED" if was_selected else "ADDED"
    return "DELETED" if was_selected else None


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    address, port = sys.argv[1].split(":")
    Server((address, int(port)), Request).serve_forever()
