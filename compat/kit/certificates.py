"""The certificates that virt-operator would have made: one CA, and virt-handler's key pairs."""

import os
import subprocess

# Name of the key pair -> common name, extended key usage, virt-handler's mount of it (None: clients
# use it).
PAIRS = {
    "server": ("kubevirt.io:system:node:virt-handler", "serverAuth", "servercertificates"),
    "client": ("kubevirt.io:system:client:virt-handler", "clientAuth", "clientcertificates"),
    "migration": (
        "kubevirt.io:system:client:migration",
        "clientAuth,serverAuth",
        "migrationservercertificates",
    ),
    "vsock": ("kubevirt.io:system:client:virt-handler", "clientAuth", "vsockclientcertificates"),
    "monitoring": ("kubevirt.io:system:client:monitoring", "clientAuth", None),
}
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def make(folder):
    os.makedirs(folder, exist_ok=True)

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, cwd=folder, capture_output=True)

    openssl(
        "req",
        "-x509",
        *NEW_KEY,
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        "-days",
        "30",
        "-subj",
        "/CN=kubevirt.io",
    )
    for name, (common_name, usage, _) in PAIRS.items():
        with open(f"{folder}/extensions", "w") as f:
            f.write(
                f"basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage={usage}\n"
                "subjectAltName=DNS:virt-handler,IP:127.0.0.1\n"
            )
        openssl(
            "req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={common_name}"
        )
        openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            "extensions",
            "-out",
            f"{name}.crt",
        )


def install(folder):
    """Puts the pairs where virt-handler's pod has them mounted."""
    for name, (_, _, mount) in PAIRS.items():
        if mount:
            place = f"/etc/virt-handler/{mount}"
            os.makedirs(place, exist_ok=True)
            for end in ("crt", "key"):
                with open(f"{folder}/{name}.{end}") as source, open(f"{place}/tls.{end}", "w") as target:
                    target.write(source.read())


def authority(folder):
    with open(f"{folder}/ca.crt") as f:
        return f.read()
