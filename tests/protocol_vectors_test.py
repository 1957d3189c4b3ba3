#!/usr/bin/env python3
"""Computes the test vectors of docs/protocol.md from the rules of that page, with nothing of the library: what somebody
who writes a second implementation would do. Standard library only.

usage: protocol_vectors_test.py <source directory>
"""
import hashlib
import hmac
import pathlib
import re
import struct
import sys

sys.dont_write_bytecode = True
from protocol_stranger import (
    Aes, ack, cmac, counted, counting, expand, extract, gcm, grant, method, nonce_of, opened, prf, reply, request, transfer,
)

# ---- the page ----


def read_page(source):
    page = (pathlib.Path(source) / "docs" / "protocol.md").read_text(encoding="utf-8")
    values = {}
    for name, value in re.findall(r"^\| (.*) \| `([0-9a-f]+)` \|$", page[page.index("\n## Test vectors\n") :], re.M):
        if name in values:
            sys.exit(f"{name} comes twice")
        values[name] = bytes.fromhex(value)
    return values


VALUES = read_page(sys.argv[1])
SEEN = set()
FAILURES = []


def check(name, value, expected):
    if value != expected:
        FAILURES.append(f"{name}: {value.hex()} instead of {expected.hex()}")


def expect(name, value):
    SEEN.add(name)
    check(name, VALUES.get(name, b""), value)
    return value


# ---- keys ----
text = b"correct horse battery staple"
shared = expect("shared", extract(b"weir 1 shared secret", text))
hello_key = expect("hello key", expand(shared, counted(b"weir 1 hello"), 16))
answer_key = expect("answer key", expand(shared, counted(b"weir 1 answer"), 16))
signer = expect("signer", expand(shared, counted(b"weir 1 signer"), 16))
expect("order (K-3) of the shared secret", expand(shared, counted(b"weir 1 order"), 8))

initiator_incarnation, responder_incarnation = counting(0x10, 16), counting(0x20, 16)
initiator_random, cookie = counting(0x40, 32), counting(0x30, 16)
initiator_path, responder_path, sequence = 0x0102, 0x0203, 17
ports = {"initiator": (0, 40000), "responder": (2, 4433)}
address = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]) + struct.pack("<HH", 40000, 0)
responder_random = prf(cookie, sequence, address) + prf(cookie, sequence, address, 1)
expect("responder's random", responder_random)
fresh = expect("fresh", extract(initiator_random + responder_random, shared))
path = counted(b"weir 1 path") + counted(b"client") + counted(b"server") + initiator_incarnation + responder_incarnation
path_secret = expect("path secret", expand(fresh, path + struct.pack("<II", initiator_path, sequence), 32))


def control_key(sender, key_id):
    receiver = "responder" if sender == "initiator" else "initiator"
    info = counted(b"weir 1 control") + bytes([sender == "initiator"])
    return expand(path_secret, info + struct.pack("<HHHHI", *ports[sender], *ports[receiver], key_id), 16)


keys = {sender: control_key(sender, 0) for sender in ports}
expect("control key, from the initiator, key id 0", keys["initiator"])
expect("control key, from the initiator, key id 1", control_key("initiator", 1))
expect("control key, from the responder, key id 0", keys["responder"])
retire = expect("retire key, from the initiator", expand(path_secret, counted(b"weir 1 retire") + b"\1", 16))
expect("retire key, from the responder", expand(path_secret, counted(b"weir 1 retire") + b"\0", 16))
retirement = struct.pack("<BI", 13, 1)
expect(
    "`retire_control_key` of key id 1, from the initiator", retirement + gcm(retire, nonce_of(0, 1), retirement, b"")[1]
)

# ---- methods ----
for name in ("echo", "weir.bulk.ask", "weir.bulk.put", "weir.bulk.get"):
    expect(f"`{name}`", struct.pack("<Q", method(name.encode())))

# ---- records ----
data_key = counting(0xD0, 16)


def record(text, n, i):
    return gcm(data_key, nonce_of(2, i), struct.pack("<Q", n), text)


body, body_tag = record(counting(0, 100), 100, 0)
expect("record 0 of 100 bytes `00 01 ... 63`", body)
expect("its tag", body_tag)
last, last_tag = record(b"weir!", 61440 + 5, 1)
expect("record 1 of 61,440 zeros and `weir!`", last)
expect("the tag of record 1", last_tag)
expect("digest of the binding `weir!` (G-2)", hmac.new(b"weir binding\0", b"weir!", hashlib.sha256).digest()[:16])
expect("digest of an empty binding", hmac.new(b"weir binding\0", b"", hashlib.sha256).digest()[:16])

# ---- frames ----
some = transfer(7, 0x123456789)
region = transfer(2, 5)
expect("`ack`", ack(1000, 250, [(996, 1000), (900, 993)], (990, 0, 2)))
expect(
    "fragment of a `request`", request(1, 5 | 1 << 3, some, b"echo", 2**32 - 1, b"middle", header=16, fragment=(1500, 1000))
)
expect("failed `reply`", reply(1, some, b"\5\0not now"))
expect("`cancel`", struct.pack("<BBQH", 4, 1, some, 1500))
expect("`credit`", struct.pack("<BBQ", 5, 0, 131072))
expect("`blocked`", struct.pack("<BBQ", 6, 1 | 5 << 3, 40000))
expect("`region_revoke`", struct.pack("<BBQQ", 19, 0, some, region))
expect("`region_exhausted`", struct.pack("<BBQI", 20, 0, some, 800))
expect("`range_ack`", struct.pack("<BBQQQ", 23, 1, some, region, 3000000))

# ---- lost state ----
path_reset = expect("reset key of the responder's path", prf(signer, 2**32 + responder_path, address))
credential = counting(0xB0, 16)
credential_reset = expect("reset key of the credential", prf(signer, 2 * 2**32, credential))
teller = struct.pack("<HH", *ports["responder"])
unknown = struct.pack("<BBI", 6, 1, initiator_path) + teller + initiator_random[:16] + credential
expect(
    "UNKNOWN_SECRET in answer to the hello",
    unknown + prf(credential_reset, 2**32 + initiator_path, initiator_random[:16] + teller),
)

# ---- the conversation ----


def introduction(path, sender, random, incarnation, name):
    return struct.pack("<IHH", path, *ports[sender]) + random + incarnation + bytes([len(name)]) + name


me = introduction(initiator_path, "initiator", initiator_random, initiator_incarnation, b"client")
you = introduction(0, "responder", responder_random, responder_incarnation, b"server")
hello = b"\x02\x01" + me + bytes(16)
expect("HELLO", (hello + cmac(hello_key, b"\xff" * 8 + hello)).ljust(256, b"\0"))
told = struct.pack("<BBHIQ", 3, 1, 0, initiator_path, sequence) + initiator_random[:16] + you
told += struct.pack("<IIII", 4096, 16384, 65536, 32896)
expect("HELLO_REPLY", told + cmac(answer_key, told))


def header(kind, number, path, is_data=False):
    return bytes([kind | (0x80 if is_data else 0)]) + struct.pack("<I", number)[:3] + struct.pack("<I", path)


def sealed(sender, number, frames, front=b""):
    path = responder_path if sender == "initiator" else initiator_path
    front = front or header(0, number, path)
    return front + b"".join(gcm(keys[sender], nonce_of(0, number), front, frames))


first_call, second_call = transfer(0, 1), transfer(0, 2)
granted, token = transfer(0, 1), transfer(1, 1)
prefix = struct.pack("<QI", sequence, 65536) + me + bytes(16) + counting(0xA0, 12)
prefix += cmac(hello_key, prefix + responder_random)
frames = request(1, 3, first_call, b"echo", 4998100, b"tohello", header=2)
expect("frames of FIRST", frames)
expect("FIRST", sealed("initiator", 0, frames, header(1, 0, initiator_path) + prefix))

frames = ack(0, 0, [(0, 0)]) + struct.pack("<BI", 11, responder_path) + path_reset + reply(0, first_call, b"tohello", 2)
expect("frames of the answer to FIRST", frames)
expect("answer to FIRST", sealed("responder", 0, frames))

opening = struct.pack("<QQQQIBB2x", 100, 0, 100, 0, 61440, 2, 0) + data_key + b"big"
frames = ack(0, 100, [(0, 0)]) + request(14, 3, second_call, b"store", 4999900, opening)
expect("frames of the opening", frames)
packet = expect("opening of a large request", sealed("initiator", 1, frames))
told = b"\x07" + packet[1:8]
expect("UNKNOWN_PATH in answer to the opening", told + prf(path_reset, 1, packet[4:8]))

frames = ack(1, 0, [(0, 1)]) + grant(0, second_call, granted, 100) + grant(2, 0, token, 65536)
expect("frames of the grants", frames)
expect("grants", sealed("responder", 1, frames))

frames = ack(1, 0, [(0, 1)]) + struct.pack("<BQIH", 17, granted, 0, 0) + body_tag
expect("frames of the data packet", frames)
cipher, tag = gcm(keys["initiator"], nonce_of(1, 2), body, frames)
expect("data packet", header(0, 2, responder_path, True) + struct.pack("<H", len(frames)) + cipher + tag + body)

frames = ack(2, 0, [(1, 2)]) + struct.pack("<BBQI", 22, 0, second_call, 0) + reply(0, second_call, b"stored")
expect("frames of the answer to the data packet", frames)
packet = expect("answer to the data packet", sealed("responder", 2, frames))
check("an opened packet", opened(keys["responder"], nonce_of(0, 2), packet[:8], packet[8:-16], packet[-16:]), frames)

frames = struct.pack("<BBQ", 10, 0, 0)
expect("frames of the closing packet", frames)
expect("closing packet", sealed("initiator", 3, frames))

# ---- identities ----


def expand_label(secret, label, context, size):
    """RFC 8446, section 7.1."""
    label = b"tls13 " + label
    return expand(secret, struct.pack(">HB", size, len(label)) + label + bytes([len(context)]) + context, size)


def exported(secret, label, size):
    """RFC 8446, section 7.5, with an empty context."""
    nothing = hashlib.sha256(b"").digest()
    return expand_label(expand_label(secret, label, nothing, 32), b"exporter", nothing, size)


expect("secret of the credential", exported(counting(0x80, 32), b"EXPORTER-weir-1-secret", 32))
expect("id of the credential", exported(counting(0x80, 32), b"EXPORTER-weir-1-id", 16))
workers = struct.pack("<HHHB", 0, 0, 5001, 0) + struct.pack("<HHHB", 1, 1, 5002, 1)
workers += bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 8])
fields = [
    (1, b"\1\1"),
    (2, initiator_incarnation),
    (3, b"client"),
    (4, workers),
    (5, struct.pack("<I", 1)),
    (6, struct.pack("<I", 8972)),
    (8, counting(0xE0, 16)),
]
offer = expect("offer", b"".join(struct.pack("<HH", kind, len(value)) + value for kind, value in fields))
expect("offer on the stream", struct.pack("<H", len(offer)) + offer)
expect("answer on the stream, with the same offer", struct.pack("<BH", 0, len(offer)) + offer)
expect('refusal on the stream: `refused`, "not you"', struct.pack("<BH", 5, 7) + b"not you")

# ---- known answers of others, so that a mistake here cannot agree with one there ----
check(
    "AES (FIPS 197)",
    Aes(counting(0, 16)).block(bytes(17 * i for i in range(16))),
    bytes.fromhex("69c4e0d86a7b0430d8cdb78070b4c55a"),
)
check(
    "CMAC (RFC 4493)",
    cmac(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"), b""),
    bytes.fromhex("bb1d6929e95937287fa37d129b756746"),
)

for name in sorted(set(VALUES) - SEEN):
    FAILURES.append(f"{name}: is on the page, and nobody computes it")
for failure in FAILURES:
    print(failure)
print(f"{len(SEEN)} values of docs/protocol.md computed, {len(FAILURES)} wrong")
sys.exit(1 if FAILURES else 0)
