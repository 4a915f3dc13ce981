"""What compat/run passes to the processes of the kit: folders and files, all absolute."""

import os

RESULTS = os.environ.get("COMPAT_RESULTS", "")  # one folder below it for each variant
SCRATCH = os.environ.get("COMPAT_SCRATCH", "")  # emptied by nobody; holds mounts while a node runs
GUEST = os.environ.get("COMPAT_GUEST", "")  # bootable disk image of the test guest
SHARED = os.environ.get("COMPAT_SHARED", "")  # two nodes: a folder that both see

VERSIONS = ("v1.9", "v1.10")  # of KubeVirt
KUBEVIRT = os.environ.get("COMPAT_KUBEVIRT", VERSIONS[0])  # the one whose virt-handler runs


def results(scratch, version):
    """The folder with the records of launchers with this version's virt-handler."""
    return f"{scratch}/results" + ("" if version == VERSIONS[0] else f"/{version}")


TIMEOUTS = float(os.environ.get("COMPAT_TIMEOUTS", "1"))  # factor of each limit of a wait, for slow machines

NODE_NAME = os.environ.get("NODE_NAME", "node01")
NODE_ADDRESS = os.environ.get("NODE_ADDRESS", "127.0.0.1")  # of virt-handler's pod
API_SERVER = os.environ.get("API_SERVER", "http://127.0.0.1:6443")
CERTIFICATES = os.environ.get("COMPAT_CERTIFICATES", "/run/certificates")
CLIENT = os.environ.get("COMPAT_CLIENT", "client")  # name of the client's certificate there

# virt-handler's REST server for consoles and subresources; in a cluster the API server passes them
# on.
CONSOLE_PORT = 8186
REST_PORT = int(os.environ.get("COMPAT_REST_PORT", CONSOLE_PORT))
REST_ROOT = os.environ.get("COMPAT_REST_ROOT", "/v1")

HANDLER_VERBOSITY = int(os.environ.get("HANDLER_VERBOSITY", "3"))

# What the test guest prints on its serial console once its shell is there.
GUEST_UP = "virt-launcher test guest is up"
