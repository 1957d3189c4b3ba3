"""What a second implementation needs of docs/protocol.md, written from that page alone: ciphers, keys, frames. Nothing
is fast or complete; tests use it. Standard library only.
"""
import hashlib
import hmac
import struct

# ---- AES-128, GCM (NIST SP 800-38D) and CMAC (RFC 4493) ----


def make_sbox():
    def times(a, b):
        product = 0
        while b:
            product ^= a if b & 1 else 0
            a = a << 1 ^ (0x11B if a & 0x80 else 0)
            b >>= 1
        return product

    sbox = []
    for value in range(256):
        inverse = next((x for x in range(256) if times(value, x) == 1), 0)
        turned = inverse
        for shift in range(1, 5):
            turned ^= (inverse << shift | inverse >> (8 - shift)) & 0xFF
        sbox.append(turned ^ 0x63)
    return sbox


SBOX = make_sbox()


def doubled(byte):
    return byte << 1 & 0xFF ^ (0x1B if byte & 0x80 else 0)


class Aes:
    def __init__(self, key):
        words = [key[i : i + 4] for i in range(0, 16, 4)]
        constant = 1
        while len(words) < 44:
            word = words[-1]
            if len(words) % 4 == 0:
                word = bytes(SBOX[b] for b in word[1:] + word[:1])
                word = bytes([word[0] ^ constant]) + word[1:]
                constant = doubled(constant)
            words.append(xored(words[-4], word))
        self.keys = [b"".join(words[i : i + 4]) for i in range(0, 44, 4)]

    def block(self, block):
        state = xored(block, self.keys[0])
        for number, key in enumerate(self.keys[1:], 1):
            state = bytes(SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16))
            if number != 10:
                mixed = bytearray()
                for i in range(0, 16, 4):
                    column = state[i : i + 4]
                    every = column[0] ^ column[1] ^ column[2] ^ column[3]
                    mixed += bytes(column[j] ^ every ^ doubled(column[j] ^ column[(j + 1) % 4]) for j in range(4))
                state = bytes(mixed)
            state = xored(state, key)
        return state


def xored(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def cmac(key, text):
    aes = Aes(key)

    def half(block):
        value = int.from_bytes(block, "big") << 1
        return ((value & (1 << 128) - 1) ^ (0x87 if value >> 128 else 0)).to_bytes(16, "big")

    first = half(aes.block(bytes(16)))
    whole = len(text) % 16 == 0 and text
    padded = text if whole else text + b"\x80" + bytes(-(len(text) + 1) % 16)
    last = xored(padded[-16:], first if whole else half(first))
    state = bytes(16)
    for i in range(0, len(padded) - 16, 16):
        state = aes.block(xored(state, padded[i : i + 16]))
    return aes.block(xored(state, last))


def gcm(key, nonce, additional, text, seals=True):
    """What `text` becomes, and the tag."""
    aes = Aes(key)
    out = b""
    for i in range(0, len(text), 16):
        out += xored(text[i : i + 16], aes.block(nonce + struct.pack(">I", 2 + i // 16)))
    h = int.from_bytes(aes.block(bytes(16)), "big")

    def times_h(x):
        product, v = 0, h
        for bit in range(127, -1, -1):
            product ^= v if x >> bit & 1 else 0
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
        return product

    cipher = out if seals else text
    hashed = 0
    for part in (additional, cipher, struct.pack(">QQ", 8 * len(additional), 8 * len(cipher))):
        for i in range(0, len(part), 16):
            hashed = times_h(hashed ^ int.from_bytes(part[i : i + 16].ljust(16, b"\0"), "big"))
    return out, xored(hashed.to_bytes(16, "big"), aes.block(nonce + struct.pack(">I", 1)))


def opened(key, nonce, additional, cipher, tag):
    text, expected = gcm(key, nonce, additional, cipher, seals=False)
    if tag != expected:
        raise ValueError("a tag does not verify")
    return text


# ---- K: keys ----


def extract(salt, material):
    return hmac.new(salt, material, hashlib.sha256).digest()


def expand(secret, info, size):
    out, block = b"", b""
    while len(out) < size:
        block = hmac.new(secret, block + info + bytes([len(out) // 32 + 1]), hashlib.sha256).digest()
        out += block
    return out[:size]


def counted(x):
    return struct.pack("<Q", len(x)) + x


def nonce_of(domain, number):
    return struct.pack("<IQ", domain, number)


def counting(first, size):
    return bytes(range(first, first + size))


def prf(key, number, context, which=0):
    return cmac(key, struct.pack("<Q", number) + context.ljust(20, b"\0") + struct.pack("<I", which))


# ---- methods ----


def method(name):
    h, mask = 0xCBF29CE484222325, (1 << 64) - 1
    for byte in name:
        h = (h ^ byte) * 0x100000001B3 & mask
    for _ in range(2):
        h = (h ^ h >> 32) * 0xD6E8FEB86659FD93 & mask
    return h ^ h >> 32


# ---- frames ----


def transfer(slot, generation):
    return slot | generation << 24


def ack(largest, delay, ranges, counts=()):
    """Ranges as (first, last), descending."""
    out = struct.pack("<BBQIQ", 3, len(ranges) - 1 | (0x80 if counts else 0), largest, delay, largest - ranges[0][0])
    for above, (first, last) in zip(ranges, ranges[1:]):
        out += struct.pack("<QQ", above[0] - last - 2, last - first)
    return out + b"".join(struct.pack("<Q", count) for count in counts)


def request(kind, flags, identity, name, left, message, header=0, fragment=()):
    flags |= (0x40 if header else 0) | (0x80 if fragment else 0)
    out = struct.pack("<BBHQQI", kind, flags, len(message), identity, method(name), left)
    return out + (struct.pack("<H", header) if header else b"") + struct.pack(f"<{len(fragment)}H", *fragment) + message


def reply(flags, identity, message, header=0):
    out = struct.pack("<BBHQ", 2, flags | (0x40 if header else 0), len(message), identity)
    return out + (struct.pack("<H", header) if header else b"") + message


def grant(side, identity, region, capacity):
    return struct.pack("<BBQQQII", 18, side, identity, region, capacity, 10000, 2**32 - 1)
