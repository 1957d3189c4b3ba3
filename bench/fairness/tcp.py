"""A TCP flow: tcp.py server --at ADDRESS, or tcp.py client --at ADDRESS --congestion cubic|bbr.

Speaks with whoever started it as burst.h says: `round` starts to send, for good; `counters` says what was sent again.
"""

import argparse
import json
import select
import socket
import struct
import sys
import threading

CHUNK = bytes(64 << 10)
TOTAL_RETRANS_AT = 100  # of struct tcp_info, in segments
INFO_BYTES = 104


def say(answer):
    print(json.dumps(answer), flush=True)


def discard(connection):
    buffer = bytearray(256 << 10)
    while connection.recv_into(buffer):
        pass


def serve(host, port):
    with socket.create_server((host, port)) as listener:
        say({"ready": True})
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            threading.Thread(target=discard, args=[listener.accept()[0]], daemon=True).start()


def send_for_good(flow):
    while True:
        flow.sendall(CHUNK)


def call(host, port, congestion):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as flow:
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        # A flow that leaves sends nothing more of what waits in its socket.
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        say({"ready": True})
        for line in sys.stdin:
            if line.strip() == "round":
                flow.connect((host, port))
                threading.Thread(target=send_for_good, args=[flow], daemon=True).start()
                say({})
            else:
                info = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
                say({"segments_retransmitted": struct.unpack_from("I", info, TOTAL_RETRANS_AT)[0]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("--at", required=True)
    parser.add_argument("--congestion", default="cubic")
    options = parser.parse_args()
    host, port = options.at.rsplit(":", 1)
    if options.role == "server":
        serve(host, int(port))
    else:
        call(host, int(port), options.congestion)


if __name__ == "__main__":
    main()
