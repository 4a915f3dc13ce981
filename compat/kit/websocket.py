"""As much of a WebSocket client as a console needs."""

import base64
import os
import ssl
import struct
import time

from kit import rest, settings

TEXT_FRAMES = (0, 1, 2)
CLOSE_FRAME = 8
SWITCHING_PROTOCOLS = 101


class WebSocket:
    """`text`: what has come so far; `closed`: why nothing more comes, or None."""

    def __init__(self, path, address=settings.NODE_ADDRESS, timeout=10):
        self.connection = rest.connect(address, settings.REST_PORT, timeout=timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        self.connection.sendall(
            (
                f"GET {path} HTTP/1.1\r\nHost: virt-handler\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Protocol: plain.kubevirt.io\r\n\r\n"
            ).encode()
        )
        self.buffer, self.text, self.closed = b"", b"", None
        while b"\r\n\r\n" not in self.buffer:
            chunk = self.connection.recv(4096)
            if not chunk:
                break
            self.buffer += chunk
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        if not head or int(head.split()[1]) != SWITCHING_PROTOCOLS:
            raise RuntimeError(f"{path}: {head.splitlines()[:1]} {self.buffer[:300]!r}")

    def receive(self, timeout):
        """Reads what comes within the time; False at the end of the stream."""
        self.connection.settimeout(timeout)
        try:
            chunk = self.connection.recv(65536)
        except (TimeoutError, ssl.SSLWantReadError):
            return True
        except OSError as error:
            self.closed = repr(error)
            return False
        if not chunk:
            self.closed = self.closed or "EOF"
            return False
        self.buffer += chunk
        while self.take_frame():
            pass
        return True

    def take_frame(self):
        if len(self.buffer) < 2:
            return False
        size, start = self.buffer[1] & 0x7F, 2
        if size >= 126:
            width, form = (2, ">H") if size == 126 else (8, ">Q")
            if len(self.buffer) < 2 + width:
                return False
            size, start = struct.unpack(form, self.buffer[2 : 2 + width])[0], 2 + width
        if len(self.buffer) < start + size:
            return False
        kind, data = self.buffer[0] & 15, self.buffer[start : start + size]
        self.buffer = self.buffer[start + size :]
        if kind in TEXT_FRAMES:
            self.text += data
        elif kind == CLOSE_FRAME:
            code = struct.unpack(">H", data[:2])[0] if len(data) > 1 else ""
            self.closed = f"close frame {code} {data[2:].decode(errors='replace')}"
        return True

    def expect(self, text, timeout):
        """Whether the text comes within the time."""
        deadline = time.time() + timeout * settings.TIMEOUTS
        while text.encode() not in self.text:
            if time.time() > deadline or not self.receive(min(1, max(0.05, deadline - time.time()))):
                return False
        return True

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.connection.sendall(
            b"\x82" + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        )

    def close(self):
        try:
            self.connection.close()
        except OSError:
            pass
