#!/usr/bin/env python3
"""A caller that was written from docs/protocol.md alone speaks with a server of this library: handshake, a small call, a
change of its address, a large request and a large reply (a put and a get), and the end.

usage: protocol_live_test.py WEIR
"""
import os
import re
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from protocol_stranger import ack, cmac, counted, expand, extract, gcm, nonce_of, opened, request, transfer

SECRET = "a secret that both sides know"
PATIENCE_S = 60  # for things that should take one or two seconds
LARGEST_DATAGRAM = 1472  # larger ones do not get through, it seems: AES in Python is slow
RECORD = 61440
PATTERN_UNARY, PATTERN_PUT, PATTERN_GET = 0, 2, 3
WORKER, PORT = 7, 12345  # not ours: as behind a NAT (H-2)
PATH = 0x01020304


def padded(layout, text):
    """The fields of a frame, from a text that may be longer."""
    return struct.unpack(layout, text[: struct.calcsize(layout)])


class Payload:
    """Sealed before there is a path: a peer that says nothing for 3 s has failed (L-3), and this may take as long."""

    def __init__(self, text):
        self.key = os.urandom(16)
        self.size = len(text)
        pieces = [text[at : at + RECORD] for at in range(0, len(text), RECORD)]
        n = struct.pack("<Q", len(text))
        self.records = [gcm(self.key, nonce_of(2, i), n, piece) for i, piece in enumerate(pieces)]


class Stranger:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.server = (host, int(port))
        self.socket = None
        self.move()
        self.challenges = 0
        self.number = 0
        self.remote_path = None
        self.received = set()
        self.replies = {}  # by transfer: frame type, flags, header's length, message
        self.grants = {}  # by transfer: region
        self.revoked = set()
        self.complete = set()  # transfers of which transfer_ack came
        self.landings = {}  # by region
        self.generation = 0
        self.shake_hands()

    # P-11: from another port from now on, as behind a NAT that forgot us.
    def move(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(self.server)

    # ---- H ----
    def shake_hands(self):
        shared = extract(b"weir 1 shared secret", SECRET.encode())
        random, incarnation = os.urandom(32), os.urandom(16)
        me = struct.pack("<IHH", PATH, WORKER, PORT) + random + incarnation + b"\x08stranger"
        hello_key = expand(shared, counted(b"weir 1 hello"), 16)
        hello = b"\x02\x01" + me + bytes(16)
        told = self.say_hello((hello + cmac(hello_key, b"\xff" * 8 + hello)).ljust(256, b"\0"))
        if told[-16:] != cmac(expand(shared, counted(b"weir 1 answer"), 16), told[:-16]):
            raise ValueError("the reply's MAC is wrong")
        kind, version, _, to_path, sequence = struct.unpack("<BBHIQ", told[:16])
        if (kind, version, to_path, told[16:32]) != (3, 1, PATH, random[:16]):
            raise ValueError("this is no reply to our hello")
        _, worker, port = struct.unpack("<IHH", told[32:40])
        your_random, your_incarnation = told[40:72], told[72:88]
        name = told[89 : 89 + told[88]]
        _, _, allowance, _ = struct.unpack("<IIII", told[89 + len(name) : -16])
        info = counted(b"weir 1 path") + counted(b"stranger") + counted(name) + incarnation + your_incarnation
        fresh = extract(random + your_random, shared)
        path_secret = expand(fresh, info + struct.pack("<II", PATH, sequence & 0xFFFFFFFF), 32)

        def control(direction, *ends):
            return expand(path_secret, counted(b"weir 1 control") + struct.pack("<BHHHHI", direction, *ends, 0), 16)

        self.send_key = control(1, WORKER, PORT, worker, port)
        self.receive_key = control(0, worker, port, WORKER, PORT)
        prefix = struct.pack("<QI", sequence, allowance) + me + bytes(16) + os.urandom(12)
        self.prefix = prefix + cmac(hello_key, prefix + your_random)

    def say_hello(self, hello):
        self.socket.settimeout(1)
        for _ in range(PATIENCE_S):
            self.socket.send(hello)
            try:
                return self.socket.recv(2000)
            except (TimeoutError, socket.timeout):
                continue
        raise ValueError("nobody answers")

    # ---- P, G-5 ----
    def send(self, frames, piece=None):
        if self.received and self.remote_path is not None:
            frames = self.acknowledgement() + frames
        low = struct.pack("<I", self.number)[:3]
        if piece is not None:
            sealed, tag = gcm(self.send_key, nonce_of(1, self.number), piece, frames)
            front = b"\x80" + low + struct.pack("<I", self.remote_path)
            self.socket.send(front + struct.pack("<H", len(frames)) + sealed + tag + piece)
        else:
            if self.remote_path is None:
                front = b"\x01" + low + struct.pack("<I", PATH) + self.prefix
            else:
                front = b"\x00" + low + struct.pack("<I", self.remote_path)
            self.socket.send(front + b"".join(gcm(self.send_key, nonce_of(0, self.number), front, frames)))
        self.number += 1

    def acknowledgement(self):
        ranges = []
        for number in sorted(self.received, reverse=True):
            if ranges and ranges[-1][0] == number + 1:
                ranges[-1][0] = number
            else:
                ranges.append([number, number])
        return ack(ranges[0][1], 0, ranges[:32])

    # Until it has led to something: what is lost is sent again in another packet.
    def say(self, frames, is_done):
        for _ in range(PATIENCE_S // 2):
            self.send(frames)
            if self.listen(is_done, 2):
                return
        raise ValueError("the server does not answer")

    # Takes what comes until `is_done`, and acknowledges it.
    def listen(self, is_done, patience_s=PATIENCE_S):
        end = time.monotonic() + patience_s
        owed = 0
        while not is_done():
            self.socket.settimeout(0.02 if owed else 0.2)
            try:
                packet = self.socket.recv(65536)
            except (TimeoutError, socket.timeout):
                if owed:
                    self.send(b"\x0c")
                    owed = 0
                if time.monotonic() > end:
                    return False
                continue
            if len(packet) <= LARGEST_DATAGRAM:
                self.take(packet)
                owed += 1
        if owed and self.remote_path is not None:
            self.send(b"")
        return True

    def take(self, packet):
        if packet[0] & 3 == 3:  # another answer to our hello
            return
        if packet[0] & 0x7F != 0 or packet[4:8] != struct.pack("<I", PATH):
            raise ValueError("a packet of another type or path, or of another key than the first")
        number = int.from_bytes(packet[1:4], "little")
        piece = None
        if packet[0] & 0x80:
            (size,) = struct.unpack("<H", packet[8:10])
            piece = packet[26 + size :]
            cipher, tag = packet[10 : 10 + size], packet[10 + size : 26 + size]
            text = opened(self.receive_key, nonce_of(1, number), piece, cipher, tag)
        else:
            text = opened(self.receive_key, nonce_of(0, number), packet[:8], packet[8:-16], packet[-16:])
        if number in self.received:
            raise ValueError("a packet comes twice")
        self.received.add(number)
        while text and text[0] != 0:
            text = text[self.take_frame(text, piece) :]

    # ---- F: how long the frame is ----
    def take_frame(self, text, piece):
        kind = text[0]
        if kind in (2, 15):
            flags, size, identity = padded("<BHQ", text[1:])
            at = 12
            header = 0
            if flags & 0x40:
                (header,) = padded("<H", text[at:])
                at += 2
            if flags & 0x80:
                raise ValueError("none of our replies needs fragments")
            self.replies[identity] = (kind, flags, header, text[at : at + size])
            return at + size
        if kind == 3:
            return 22 + 16 * (text[1] & 0x7F) + (24 if text[1] & 0x80 else 0)
        if kind == 10:
            raise ValueError(f"the server closed: {text[:10].hex()}")
        if kind == 11:
            (self.remote_path,) = padded("<I", text[1:])
            return 21
        if kind in (16, 17):
            region, record, offset = padded("<QIH", text[1:])
            landing = self.landings[region]
            at = record * RECORD + offset
            landing["body"][at : at + len(piece)] = piece
            landing["missing"][at : at + len(piece)] = bytes(len(piece))
            if kind == 17:
                landing["tags"][record] = text[15:31]
            return 31 if kind == 17 else 15
        if kind == 18:
            side, identity, region = padded("<BQQ", text[1:])
            if side == 0 and region not in self.revoked:
                self.grants[identity] = region
            return 34
        if kind == 19:  # a grant that comes late is of a region that is gone, too
            _, identity, region = padded("<BQQ", text[1:])
            self.revoked.add(region)
            if self.grants.get(identity) == region:
                del self.grants[identity]
        if kind == 24:  # P-12
            self.challenges += 1
            self.send(b"\x19" + text[1:9])
        if kind == 22:
            self.complete.add(padded("<BQ", text[1:])[1])
        lengths = {5: 10, 7: 9, 8: 9, 9: 9, 12: 1, 13: 21, 19: 18, 20: 14, 21: 14, 22: 14, 23: 26, 24: 9}
        if kind not in lengths:
            raise ValueError(f"a frame of type {kind}")
        return lengths[kind]

    # ---- T ----
    def call(self, name, header, body=b""):
        self.generation += 1
        identity = transfer(0, self.generation)
        frame = request(1, 3, identity, name, 50000000, header + body, header=len(header))
        self.say(frame, lambda: identity in self.replies)
        return identity, self.replies[identity]

    # ---- G ----
    def call_large(self, name, header, payload, pattern):
        self.generation += 1
        identity = transfer(0, self.generation)
        fields = (payload.size, 0, payload.size, 0, RECORD, 0, pattern)
        opening = struct.pack("<QQQQIBB2x", *fields) + payload.key + header
        self.say(request(14, 3, identity, name, 50000000, opening), lambda: identity in self.grants | self.replies)
        if identity in self.replies:  # refused before any data
            return self.replies[identity]
        while identity not in self.complete:  # what was lost is among what comes again
            if identity not in self.grants:  # taken back: we were too slow (G-9)
                self.say(struct.pack("<BBQI", 21, 0, identity, 0), lambda: identity in self.grants)
            region = self.grants[identity]
            for number, (cipher, tag) in enumerate(payload.records):
                for offset in range(0, len(cipher), 1000):
                    is_last = offset + 1000 >= len(cipher)
                    frame = struct.pack("<BQIH", 17 if is_last else 16, region, number, offset)
                    self.send(frame + (tag if is_last else b""), cipher[offset : offset + 1000])
            self.listen(lambda: identity in self.complete or identity not in self.grants, patience_s=0.5)
        self.say(b"\x0c", lambda: identity in self.replies)
        return self.replies[identity]

    # The header of a large reply, the size of its body, and what opens that: later, as it takes its time.
    def fetch(self, identity, opening):
        size, _, n, first, record_bytes, flags, pattern = struct.unpack("<QQQQIBB", opening[:38])
        expect("which says that it is part of a get", pattern, PATTERN_GET)
        if flags & 1 or record_bytes != RECORD:
            raise ValueError("this payload was sealed otherwise")
        region = transfer(5, len(self.landings) + 1)
        landing = self.landings[region] = {"body": bytearray(size), "missing": bytearray(b"\1" * size), "tags": {}}
        self.say(struct.pack("<BBQQQII", 18, 1, identity, region, size, 10000, 8192), lambda: 0 in landing["missing"])
        if not self.listen(lambda: 1 not in landing["missing"]):
            raise ValueError("the reply does not come")
        self.send(struct.pack("<BBQI", 22, 1, identity, 0))

        def open_all():
            text = b""
            for number, at in enumerate(range(0, size, RECORD)):
                cipher = bytes(landing["body"][at : at + RECORD])
                nonce = nonce_of(2, first + number)
                text += opened(opening[40:56], nonce, struct.pack("<Q", n), cipher, landing["tags"][number])
            return text

        return opening[56:], size, open_all

    # ---- L-6 ----
    def close(self):
        self.received.clear()  # it travels alone
        self.send(struct.pack("<BBQ", 10, 0, 0))


def bulk(flags, offset, size, name=b"perf"):
    return struct.pack("<BBHIQQ", flags, 0, len(name), 0, offset, size) + name


def expect(what, value, expected):
    if value != expected:
        sys.exit(f"{what}: {value!r} instead of {expected!r}")
    print(f"{what}: as the page says")


def talk(address):
    body = os.urandom(RECORD + 5000)
    payload = Payload(body)
    stranger = Stranger(address)
    _, (kind, flags, _, message) = stranger.call(b"nobody serves this", b"", b"hello")
    expect("a call of an unknown method fails, and has not run", (kind, flags & 1, message[:2]), (2, 1, b"\x0a\x00"))
    stranger.move()
    _, (kind, flags, header, message) = stranger.call(b"weir.bulk.ask", bulk(1, 4096, len(body)))
    expect("a caller at another port is challenged before it is answered", stranger.challenges > 0, True)
    expect("a put would be taken", (kind, flags & 1, header, len(message)), (2, 0, 0, 16))
    _, flags, _, message = stranger.call_large(b"weir.bulk.put", bulk(1, 4096, len(body)), payload, PATTERN_UNARY)
    expect("a put that says it is none is refused, and has not run", (flags & 1, message[:2]), (1, b"\x0b\x00"))
    kind, flags, _, message = stranger.call_large(b"weir.bulk.put", bulk(1, 4096, len(body)), payload, PATTERN_PUT)
    expect("a large request arrives", (kind, flags & 1, message), (2, 0, bytes(8) + struct.pack("<Q", len(body))))

    parts = []
    have = 0
    while have < len(body):  # a server sends as much at once as it likes (B-4)
        identity, (kind, flags, _, message) = stranger.call(b"weir.bulk.get", bulk(0, 4096 + have, len(body) - have))
        expect("a part of a placement is a large reply", (kind, flags & 1), (15, 0))
        header, size, open_all = stranger.fetch(identity, message)
        expect("with the placement's size as its header", len(header), 8)
        parts.append(open_all)
        have += size
    stranger.close()
    expect("and all of it is what was put there", b"".join(open_all() for open_all in parts) == body, True)


def main():
    server = subprocess.Popen(
        [sys.argv[1], "perf", "server", "--listen", "127.0.0.1:0"],
        env=os.environ | {"WEIR_SECRET": SECRET},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = server.stdout.readline()
        talk(re.match(r"listening on (127\.0\.0\.1:\d+)", line).group(1))
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)


main()
