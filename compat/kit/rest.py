"""virt-handler's REST server, called as virt-api calls it: TLS with a client certificate, plain HTTP/1.1."""

import json
import socket
import ssl

from kit import settings
from kit.virt_handler import METRICS_PORT, VMSTATS_PORT


def connect(address, port, certificate=settings.CLIENT, timeout=30):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(
            f"{settings.CERTIFICATES}/{certificate}.crt", f"{settings.CERTIFICATES}/{certificate}.key"
        )
    return context.wrap_socket(socket.create_connection((address, port), timeout))


def request(
    method,
    path,
    body=None,
    *,
    address=settings.NODE_ADDRESS,
    port=settings.REST_PORT,
    certificate=settings.CLIENT,
    accept="*/*",
    timeout=30,
):
    """Status code and body."""
    data = json.dumps(body).encode() if body is not None else b""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: virt-handler\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    answer = b""
    with connect(address, port, certificate, timeout) as connection:
        connection.sendall(head.encode() + data)
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, rest = answer.partition(b"\r\n\r\n")
    if not head:
        raise ConnectionError(f"{method} {path}: the connection was closed without an answer")
    if b"chunked" in head.lower():
        rest = join_chunks(rest)
    return int(head.split()[1]), rest


def join_chunks(data):
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        size = int(size, 16)
        if size == 0:
            break
        out, data = out + data[:size], data[size + 2 :]
    return out


def vmi_path(namespace, name, subresource):
    return path("virtualmachineinstances", namespace, name, subresource)


def path(resource, namespace, name, subresource):
    return f"{settings.REST_ROOT}/namespaces/{namespace}/{resource}/{name}/{subresource}"


def metrics(address=settings.NODE_ADDRESS):
    return request("GET", "/metrics", address=address, port=METRICS_PORT, certificate=None)[1].decode()


def vmstats(query, address=settings.NODE_ADDRESS):
    return request(
        "GET",
        f"/v1/vmstats?{query}",
        address=address,
        port=VMSTATS_PORT,
        certificate="monitoring",
        accept="application/json",
    )
