"""reports.py: a program that is an agent for the Reports of subnet administration, by libibumad alone, for sa_test.py.

usage: reports.py [silent]      silent: does not answer them
In: Reports at the host's first port    Out: "trap N" for each, on standard output; the first line is "ready"
"""
import ctypes
import struct
import sys

CLASS, VERSION, METHOD, RESPONSE = 3, 2, 0x06, 0x80
SIZE = 256

umad = ctypes.CDLL("libibumad.so.3", use_errno=True)
umad.umad_get_mad.restype = ctypes.POINTER(ctypes.c_ubyte)


def main():
    methods = (ctypes.c_ulong * 2)(1 << METHOD)
    port = umad.umad_open_port(b"ib0", 1)
    agent = umad.umad_register(port, CLASS, VERSION, 0, methods)
    if port < 0 or agent < 0:
        sys.exit(f"cannot open {port} or register {agent}")
    packet = ctypes.create_string_buffer(umad.umad_size() + SIZE)
    print("ready", flush=True)
    while True:
        length = ctypes.c_int(SIZE)
        if umad.umad_recv(port, packet, ctypes.byref(length), -1) != agent or umad.umad_status(packet) != 0:
            continue  # an answer that has not been sent
        mad = ctypes.cast(umad.umad_get_mad(packet), ctypes.POINTER(ctypes.c_ubyte * SIZE)).contents
        if mad[3] != METHOD:
            sys.exit(f"method {mad[3]}")
        print("trap", struct.unpack_from(">H", mad, 60)[0], flush=True)
        if sys.argv[1:] != ["silent"]:
            mad[3] |= RESPONSE
            umad.umad_send(port, agent, packet, SIZE, 0, 0)


main()
