"""Switches off what lets a network device carry packets that are larger than its MTU.

Run inside the namespace of the devices: offloads.py DEVICE...  Does what `ethtool -K DEVICE gso off tso off gro off
tx-udp-segmentation off ...` does, on machines without ethtool. Fails if a device keeps one of these features.
"""

import array
import fcntl
import re
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
GET_STRINGS, GET_STRING_COUNTS, GET_FEATURES, SET_FEATURES = 0x1B, 0x37, 0x3A, 0x3B
FEATURE_NAMES = 4  # a set of strings
NAME_BYTES = 32
OFFLOAD = re.compile(r"segmentation|\bgro\b|\blro\b|gso")


def ask(control, device, command):
    """One ethtool command; the kernel answers in the same buffer."""
    buffer = array.array("B", command)
    address, _ = buffer.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), address))
    return buffer.tobytes()


def feature_names(control, device):
    answer = ask(control, device, struct.pack("IIQI", GET_STRING_COUNTS, 0, 1 << FEATURE_NAMES, 0))
    count = struct.unpack_from("I", answer, 16)[0]
    answer = ask(control, device, struct.pack("III", GET_STRINGS, FEATURE_NAMES, count) + bytes(count * NAME_BYTES))
    return [answer[12 + i * NAME_BYTES:12 + (i + 1) * NAME_BYTES].split(b"\0")[0].decode() for i in range(count)]


def active_features(control, device, names):
    """The names of those that are active and can be switched off."""
    blocks = (len(names) + 31) // 32
    answer = ask(control, device, struct.pack("II", GET_FEATURES, blocks) + bytes(blocks * 16))
    active = []
    for i, name in enumerate(names):
        available, _, is_active, never_changed = struct.unpack_from("IIII", answer, 8 + i // 32 * 16)
        bit = 1 << i % 32
        if is_active & available & ~never_changed & bit:
            active.append(name)
    return active


def switch_off(control, device):
    names = feature_names(control, device)
    wanted = [0] * ((len(names) + 31) // 32)
    for i, name in enumerate(names):
        if OFFLOAD.search(name):
            wanted[i // 32] |= 1 << i % 32
    blocks = b"".join(struct.pack("II", valid, 0) for valid in wanted)
    ask(control, device, struct.pack("II", SET_FEATURES, len(wanted)) + blocks)
    return [name for name in active_features(control, device, names) if OFFLOAD.search(name)]


def main():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for device in sys.argv[1:]:
            if left := switch_off(control, device):
                sys.exit(f"error: {device} keeps {', '.join(left)}")


if __name__ == "__main__":
    main()
