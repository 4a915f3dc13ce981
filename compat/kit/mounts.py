"""Mounts of the node below a folder."""

import os
import subprocess


def below(folder):
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4] for line in f]
    return [point for point in points if point.startswith(folder + "/")]


def unmount_below(folder):
    """Unmounts all, the innermost first, and returns their paths relative to the folder."""
    found = below(folder)
    for point in reversed(found):
        subprocess.run(["umount", "-l", point], check=False)
    return [os.path.relpath(point, folder) for point in found]


def unmount(folder):
    subprocess.run(["umount", "-l", folder], check=True)


def mount_tmpfs(folder, options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "claim", folder], check=True)


def bind(source, target):
    subprocess.run(["mount", "--bind", source, target], check=True)
