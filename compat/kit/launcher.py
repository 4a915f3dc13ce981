"""A launcher's description: a TOML file that says of which files its image consists and how its pod differs.

See README.md, "Describing a launcher".
"""

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

KEYS = {"name", "rootfs", "trees", "files", "links", "arguments", "environment", "ovmf"}


class DescriptionError(Exception):
    """A description cannot be used; the text says which and why."""


@dataclass
class Launcher:
    name: str
    rootfs: str = ""  # the whole file system of the image; empty: this machine's own
    trees: list = field(default_factory=list)  # folders that are laid over it
    files: dict = field(default_factory=dict)  # path in the image -> file here
    links: dict = field(default_factory=dict)  # path in the image -> what the symbolic link says
    arguments: list = field(default_factory=list)  # for virt-launcher-monitor, after virt-controller's
    environment: dict = field(default_factory=dict)
    ovmf: str = "/usr/share/edk2/ovmf"  # --ovmf-path

    def sources(self):
        """Every file and folder outside the image that it is made of."""
        return [*([self.rootfs] if self.rootfs else []), *self.trees, *self.files.values()]


def read(path):
    """Paths in it are relative to the file's folder; $NAME is an environment variable."""
    folder = Path(path).resolve().parent
    try:
        with open(path, "rb") as f:
            data = tomllib.load(f)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DescriptionError(f"{path}: {error}") from error
    unknown = set(data) - KEYS
    if unknown:
        raise DescriptionError(f"{path}: unknown key {min(unknown)!r}; known are {', '.join(sorted(KEYS))}")
    name = data.get("name", "")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise DescriptionError(
            f"{path}: invalid name {name!r}: lower-case letters, digits, '.' and '-' are allowed"
        )

    def here(value):
        expanded = os.path.expandvars(value)
        if "$" in expanded:
            raise DescriptionError(f"{path}: {value}: the variable is not set")
        return str((folder / expanded).resolve())

    launcher = Launcher(**data)
    launcher.rootfs = here(launcher.rootfs) if launcher.rootfs else ""
    launcher.trees = [here(tree) for tree in launcher.trees]
    launcher.files = {target: here(source) for target, source in launcher.files.items()}
    missing = [source for source in launcher.sources() if not os.path.exists(source)]
    if missing:
        raise DescriptionError(f"{path}: missing: {', '.join(missing)}")
    return launcher
