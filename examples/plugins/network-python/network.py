#!/usr/bin/env python3
"""A plugin's sidecar: gives a guest without network data a configuration in its cloud-init image."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent import futures
from pathlib import Path

import grpc
import hooks_plugins_pb2 as messages
import hooks_plugins_pb2_grpc as services

CONFIG = """version: 2
ethernets:
  all:
    match: {name: "en*"}
    dhcp4: true
    mtu: 1400
"""

def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout


def is_config_drive(image):
    """Whether cloud-init reads it as OpenStack's: that has its network configuration in JSON."""
    return "Volume Id    : config-2" in run("xorriso", "-indev", image, "-pvd_info")


def add_network_config(image):
    """Adds the file to the image, if it has none. The same image again stays as it is."""
    directory = Path(tempfile.mkdtemp())
    try:
        run("xorriso", "-osirrox", "on", "-indev", image, "-extract", "/", str(directory))
        config = directory / "network-config"
        if config.exists():
            return
        subprocess.run(["chmod", "-R", "u+w", str(directory)], check=True)
        config.write_text(CONFIG)
        new = image + ".new"
        run("xorrisofs", "-quiet", "-output", new, "-volid", "cidata", "-joliet", "-rock", str(directory))
        os.replace(new, image)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Plugin(services.LauncherHookServiceServicer):
    def PreBoot(self, request, context):
        # Empty for a guest without cloud-init.
        if request.cloud_init_iso:
            try:
                if not is_config_drive(request.cloud_init_iso):
                    add_network_config(request.cloud_init_iso)
            except (OSError, RuntimeError) as error:
                # The virtual machine does not start, unless the failure strategy is Ignore.
                context.abort(grpc.StatusCode.INTERNAL, str(error))
        return messages.PreBootResponse()


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else "/var/run/kubevirt-plugin/network"
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    services.add_LauncherHookServiceServicer_to_server(Plugin(), server)
    socket = Path(directory, "hook.sock")
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    signal.signal(signal.SIGTERM, lambda *_: server.stop(1))
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
