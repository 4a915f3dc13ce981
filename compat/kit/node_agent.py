"""One node of two: does, below this node's kernel objects, what kit.migration_session asks for on a socket.

    python3 -m kit.node_agent DESCRIPTION SOCKET            inside enter-node

One JSON line a connection: {"call": name, "arguments": {...}} -> {"ok": ...} or {"error": ..., "trace": ...}
"""

import json
import os
import socketserver
import sys
import traceback

from kit import certificates, launcher, settings
from kit.attachment_pod import AttachmentPod
from kit.container import CGROUP
from kit.image import Image
from kit.launcher_pod import LauncherPod
from kit.pod_network import PodNetwork, ping_from_node
from kit.virt_handler import VirtHandler, label_node


class Node:
    def __init__(self, description):
        self.launcher = launcher.read(description)
        self.pods, self.attachment_pods, self.networks = {}, {}, {}

    def prepare(self, folder):
        """The image, virt-handler's certificates, and its init container."""
        self.image = Image(self.launcher)
        certificates.install(settings.CERTIFICATES)
        return label_node(self.image, f"{folder}/labeller-{settings.NODE_NAME}.log")

    def start_handler(self, log):
        self.handler = VirtHandler(log).start()

    def handler_exit_code(self):
        return self.handler.process.poll()

    def stop(self):
        code = self.handler.stop()
        try:
            os.rmdir(CGROUP)
        except OSError:  # the other node has pods
            pass
        return code

    def start_pod(self, vmi, uid, log, options):
        pod = LauncherPod(
            vmi, self.image, log, disk=settings.GUEST, uid=uid, shared=settings.SHARED + "/claims", **options
        )
        self.pods[uid] = pod.start()
        return pod.name

    def pod(self, uid, method, arguments):
        """A method of a pod."""
        return getattr(self.pods[uid], method)(*arguments)

    def start_attachment_pod(self, volume, log, size, shared):
        pod = AttachmentPod(self.image, volume, log, size=size, shared=shared)
        self.attachment_pods[pod.uid] = pod
        return pod.name, pod.uid

    def remove_attachment_pod(self, uid):
        self.attachment_pods.pop(uid).remove()

    def make_network(self, name, options):
        """A pod's network namespace; returns the pod's address."""
        self.networks[name] = PodNetwork(name, **options)
        return self.networks[name].address

    def network(self, name, method, arguments):
        """A method of a pod's network."""
        return getattr(self.networks[name], method)(*arguments)

    def remove_network(self, name):
        self.networks.pop(name).__exit__()

    @staticmethod
    def ping(address):
        return ping_from_node(address)

    def list_folder(self, uid, path):
        """The names in a folder of a pod; None if there is no such folder."""
        try:
            return sorted(os.listdir(self.pods[uid].path(path)))
        except OSError:
            return None


def serve(node, path):
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            request = json.loads(self.rfile.readline())
            try:
                answer = {"ok": getattr(node, request["call"])(**request["arguments"])}
            except Exception as error:  # noqa: BLE001 - the caller gets it
                answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    Server(path, Handler).serve_forever()


if __name__ == "__main__":
    serve(Node(sys.argv[1]), sys.argv[2])
