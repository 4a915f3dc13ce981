"""A DHCPv6 client for one exchange, for guests that have none.

python3 -m kit.dhcp6_client LINK        in the network namespace of the link; prints the answer as JSON
"""

import json
import os
import socket
import struct
import sys
import time

CLIENT_PORT, SERVER_PORT = 546, 547
ALL_SERVERS = "ff02::1:2"
SOLICIT, ADVERTISE, REQUEST, REPLY = 1, 2, 3, 7
CLIENT_ID, SERVER_ID, IA_NA, IA_ADDRESS, OPTION_REQUEST, ELAPSED_TIME = 1, 2, 3, 5, 6, 8
DNS_SERVERS, DOMAIN_LIST = 23, 24
IDENTITY_ASSOCIATION = 0x0A0B0C0D
TIMEOUT = 5  # seconds
LINK_LOCAL_TIMEOUT = 5


def option(code, data):
    return struct.pack(">HH", code, len(data)) + data


def options(data):
    out = []
    while len(data) >= 4:
        code, size = struct.unpack(">HH", data[:4])
        out.append((code, data[4 : 4 + size]))
        data = data[4 + size :]
    return out


def message(kind, transaction, client_id, server_id=b""):
    association = struct.pack(">III", IDENTITY_ASSOCIATION, 0, 0)
    out = (
        struct.pack(">I", kind << 24 | transaction)
        + option(CLIENT_ID, client_id)
        + option(ELAPSED_TIME, b"\0\0")
    )
    if server_id:
        out += option(SERVER_ID, server_id)
    return (
        out
        + option(IA_NA, association)
        + option(OPTION_REQUEST, struct.pack(">HH", DNS_SERVERS, DOMAIN_LIST))
    )


def decode(data):
    out = {"type": data[0], "options": [code for code, _ in options(data[4:])]}
    for code, value in options(data[4:]):
        if code == SERVER_ID:
            out["server id"] = value.hex()
        elif code == DNS_SERVERS:
            out["dns"] = [
                socket.inet_ntop(socket.AF_INET6, value[i : i + 16]) for i in range(0, len(value), 16)
            ]
        elif code == DOMAIN_LIST:
            out["search"] = domains(value)
        elif code == IA_NA:
            out["iaid"], out["t1"], out["t2"] = struct.unpack(">III", value[:12])
            for inner, address in options(value[12:]):
                if inner == IA_ADDRESS:
                    out["address"] = socket.inet_ntop(socket.AF_INET6, address[:16])
                    out["preferred"], out["valid"] = struct.unpack(">II", address[16:24])
    return out


def domains(data):
    out, labels = [], []
    while data:
        size, data = data[0], data[1:]
        if size == 0:
            out.append(".".join(labels))
            labels = []
        else:
            labels.append(data[:size].decode())
            data = data[size:]
    return out


def link_local(link):
    """The link's own address, once duplicate address detection is over."""
    deadline = time.time() + LINK_LOCAL_TIMEOUT
    while time.time() < deadline:
        with open("/proc/net/if_inet6") as f:
            for address, _, _, _, flags, name in (line.split() for line in f):
                if name == link and address.startswith("fe80") and not int(flags, 16) & 0x40:
                    return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
        time.sleep(0.1)
    raise TimeoutError(f"{link} has no link-local address")


def exchange(link):
    with open(f"/sys/class/net/{link}/address") as f:
        mac = bytes.fromhex(f.read().strip().replace(":", ""))
    index, client_id = socket.if_nametoindex(link), struct.pack(">HH", 3, 1) + mac
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
        s.bind((link_local(link), CLIENT_PORT, 0, index))
        s.settimeout(TIMEOUT)

        def ask(kind, server_id=b""):
            transaction = int.from_bytes(os.urandom(3), "big")
            s.sendto(message(kind, transaction, client_id, server_id), (ALL_SERVERS, SERVER_PORT, 0, index))
            while True:
                data, _ = s.recvfrom(65536)
                if int.from_bytes(data[1:4], "big") == transaction:
                    return data

        advertised = ask(SOLICIT)
        server_id = dict(options(advertised[4:])).get(SERVER_ID, b"")
        return {"solicit": decode(advertised), "request": decode(ask(REQUEST, server_id))}


if __name__ == "__main__":
    print(json.dumps(exchange(sys.argv[1])))
