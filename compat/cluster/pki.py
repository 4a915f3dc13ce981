"""The cluster's certificates and kubeconfigs, made once for a kept state."""

import base64
import os
import subprocess

API_SERVER = "https://10.245.0.1:6443"
API_SERVER_NAMES = (
    "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,"
    "DNS:localhost,IP:10.96.0.1,IP:10.245.0.1,IP:127.0.0.1"
)
SUBJECTS = {
    "apiserver": "/CN=kube-apiserver",
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "front-proxy": "/CN=front-proxy-client",
}
WITH_KUBECONFIG = ("admin", "controller-manager", "scheduler")
DAYS = 3650


def make(folder, nodes):
    """`nodes`: name -> address. Nothing happens where they are there."""
    directory = folder.make("pki")
    if os.path.exists(f"{directory}/complete"):
        return
    for authority in ("ca", "front-ca"):
        openssl(
            directory,
            f"req -x509 -newkey rsa:2048 -nodes -days {DAYS} -keyout {authority}.key -out {authority}.crt "
            f"-subj /CN={authority}",
        )
    openssl(directory, "genrsa -out sa.key 2048")
    openssl(directory, "rsa -in sa.key -pubout -out sa.pub")
    for name, subject in SUBJECTS.items():
        names = API_SERVER_NAMES if name == "apiserver" else ""
        certificate(directory, name, subject, names, "front-ca" if name == "front-proxy" else "ca")
    for name, address in nodes.items():
        subject = f"/O=system:nodes/CN=system:node:{name}"
        certificate(directory, name, subject, f"DNS:{name},IP:{address}", "ca")
    for name in (*WITH_KUBECONFIG, *nodes):
        kubeconfig(directory, name)
    open(f"{directory}/complete", "w").close()


def certificate(directory, name, subject, names, authority):
    openssl(directory, f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj {subject}")
    extensions = (
        "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature,keyEncipherment\n"
        "extendedKeyUsage=serverAuth,clientAuth\n"
    )
    with open(f"{directory}/{name}.ext", "w") as f:
        f.write(extensions + (f"subjectAltName={names}\n" if names else ""))
    openssl(
        directory,
        f"x509 -req -in {name}.csr -CA {authority}.crt -CAkey {authority}.key -CAcreateserial -out {name}.crt "
        f"-extfile {name}.ext -days {DAYS}",
    )


def openssl(directory, arguments):
    done = subprocess.run(["openssl", *arguments.split()], cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments}: {done.stderr.strip()}")


def kubeconfig(directory, name):
    def data(file):
        with open(f"{directory}/{file}", "rb") as f:
            return base64.b64encode(f.read()).decode()

    with open(f"{directory}/{name}.kubeconfig", "w") as f:
        f.write(
            f"""apiVersion: v1
kind: Config
current-context: cluster
contexts: [{{name: cluster, context: {{cluster: cluster, user: {name}}}}}]
clusters: [{{name: cluster, cluster: {{server: "{API_SERVER}", certificate-authority-data: {data("ca.crt")}}}}}]
users: [{{name: {name}, user: {{client-certificate-data: {data(name + ".crt")}, client-key-data: {data(name + ".key")}}}}}]
"""
        )
