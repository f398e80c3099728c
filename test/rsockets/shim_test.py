#!/usr/bin/env python3
"""shim_test: what programs do with TCP sockets works over the shim of `anyverbs run --rsockets`.

usage: shim_test SHIM STANDIN [TEST...]
SHIM is the library, STANDIN the folder of a librdmacm.so.1 whose rsockets are Unix sockets; -: LD_LIBRARY_PATH says which. Each test runs in a process of its own under the
shim; at its end the kernel's tables show that none of its bytes went through TCP, but for tests that mean to.
"""
import array
import asyncio
import contextlib
import ctypes
import fcntl
import os
import random
import select
import selectors
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

SHIM = os.environ.get("SHIM_TEST")
STANDIN = SHIM == "standin"


def tcp_ports():
    """Ports of TCP connections of this network namespace. One in TIME_WAIT (06) may be an earlier program's; a listener (0A) is none."""
    ports = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(table, encoding="ascii") as f:
            for line in f.readlines()[1:]:
                words = line.split()
                if words[3] not in ("06", "0A"):
                    ports.add(int(words[1].rsplit(":", 1)[1], 16))
                    ports.add(int(words[2].rsplit(":", 1)[1], 16))
    return ports


def receive(s, size):
    data = b""
    while len(data) < size:
        piece = s.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


class Shim(unittest.TestCase):
    tcp = False

    def setUp(self):
        signal.alarm(60)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()

    def tearDown(self):
        if not self.tcp:
            self.assertNotIn(self.address[1], tcp_ports())
        self.listener.close()

    def pair(self):
        client = socket.create_connection(self.address)
        server, peer = self.listener.accept()
        self.assertEqual(peer, client.getsockname())
        return client, server


class Stream(Shim):
    def test_names(self):
        a, b = self.pair()
        self.assertEqual(a.getpeername(), self.address)
        self.assertEqual(b.getsockname(), self.address)
        self.assertEqual(b.getpeername(), a.getsockname())

    def test_calls(self):
        a, b = self.pair()
        self.assertEqual(a.send(b"one"), 3)
        self.assertEqual(b.recv(10, socket.MSG_PEEK), b"one")
        self.assertEqual(b.recvfrom(10), (b"one", None))
        self.assertEqual(os.write(a.fileno(), b"two"), 3)
        self.assertEqual(os.read(b.fileno(), 10), b"two")
        self.assertEqual(os.writev(a.fileno(), [b"th", b"ree"]), 5)
        x, y = bytearray(2), bytearray(8)
        self.assertEqual(os.readv(b.fileno(), [x, y]), 5)
        self.assertEqual(bytes(x) + bytes(y[:3]), b"three")
        self.assertEqual(a.sendmsg([b"fo", b"ur"]), 4)
        data, control, flags, name = b.recvmsg(10)
        self.assertEqual((data, control, flags), (b"four", [], 0))

    def test_waitall(self):
        a, b = self.pair()
        threading.Thread(target=lambda: [(time.sleep(0.05), a.send(b"x" * 1000)) for _ in range(4)]).start()
        self.assertEqual(len(b.recv(4000, socket.MSG_WAITALL)), 4000)

    def test_waitall_of_a_vector(self):
        a, b = self.pair()
        x, y, z = bytearray(1500), bytearray(0), bytearray(2500)
        threading.Thread(target=lambda: [(time.sleep(0.05), a.send(bytes([i]) * 1000)) for i in range(4)]).start()
        self.assertEqual(b.recvmsg_into([x, y, z], 0, socket.MSG_WAITALL)[0], 4000)
        self.assertEqual(bytes(x + z), b"".join(bytes([i]) * 1000 for i in range(4)))
        a.send(b"rest")
        a.shutdown(socket.SHUT_WR)
        self.assertEqual(b.recvmsg_into([x, z], 0, socket.MSG_WAITALL)[0], 4)

    def test_messages_at_once(self):
        a, b = self.pair()
        room = ctypes.create_string_buffer(16)
        piece = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8)
        # struct mmsghdr, twice: no name, one piece, no control data
        list_ = (ctypes.c_uint64 * 16)()
        for i in range(2):
            list_[8 * i + 2], list_[8 * i + 3] = ctypes.addressof(piece), 1
        a.sendall(b"one")
        libc = ctypes.CDLL(None)
        # the second message would never come
        self.assertEqual(libc.recvmmsg(b.fileno(), list_, 2, 0x10000, None), 1)  # MSG_WAITFORONE
        self.assertEqual((list_[7] & 0xffffffff, room.raw[:3]), (3, b"one"))

    def test_large(self):
        a, b = self.pair()
        data = os.urandom(20 << 20)
        threading.Thread(target=a.sendall, args=(data,)).start()
        self.assertEqual(receive(b, len(data)), data)

    def test_end(self):
        a, b = self.pair()
        a.sendall(b"last")
        a.shutdown(socket.SHUT_WR)
        self.assertEqual(receive(b, 10), b"last")
        b.sendall(b"answer")
        self.assertEqual(receive(a, 6), b"answer")
        b.close()
        self.assertEqual(a.recv(1), b"")

    def test_write_to_closed(self):
        a, b = self.pair()
        b.close()
        with self.assertRaises((BrokenPipeError, ConnectionResetError)):
            for _ in range(100):
                a.send(b"x" * 1000)
                time.sleep(0.01)

    def test_sigpipe(self):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            listener = socket.create_server(("127.0.0.1", 0))
            a = socket.create_connection(listener.getsockname())
            listener.accept()[0].close()
            for _ in range(100):
                try:
                    os.write(a.fileno(), b"x")
                except ConnectionResetError:
                    pass
                time.sleep(0.01)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], signal.SIGPIPE)

    def test_two_threads(self):
        a, b = self.pair()
        got = []
        threads = [threading.Thread(target=lambda: got.append(receive(b, 1 << 20))),
                   threading.Thread(target=lambda: got.append(receive(a, 1 << 20))),
                   threading.Thread(target=a.sendall, args=(b"a" * (1 << 20),)), threading.Thread(target=b.sendall, args=(b"b" * (1 << 20),))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(got), [b"a" * (1 << 20), b"b" * (1 << 20)])

    @unittest.skipIf(STANDIN, "its addresses are all 127.0.0.1")
    def test_mapped_addresses(self):
        listener = socket.socket(socket.AF_INET6)
        listener.bind(("::", 0))
        listener.listen()
        port = listener.getsockname()[1]
        for family, to, seen in ((socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1"), (socket.AF_INET6, "::1", "::1"),
                                 (socket.AF_INET6, "::ffff:127.0.0.1", "::ffff:127.0.0.1")):
            client = socket.socket(family)
            client.connect((to, port))
            server, peer = listener.accept()
            self.assertEqual((peer[0], server.getpeername()[0], server.getsockname()[0]), (seen, seen, seen))
            self.assertEqual((client.getsockname()[0], client.getsockname()[1]), (to, peer[1]))
            self.assertEqual(client.getpeername()[:2], (to, port))
        self.assertNotIn(port, tcp_ports())

    def test_ipv6(self):
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        a = socket.create_connection(listener.getsockname()[:2])
        b, peer = listener.accept()
        self.assertEqual(peer[:2], a.getsockname()[:2])
        a.sendall(b"six")
        self.assertEqual(b.recv(3), b"six")
        if STANDIN:  # no GID is ::1: TCP
            self.assertNotIn(listener.getsockname()[1], tcp_ports())

    def test_backlog(self):
        """Clients are connected before the server accepts."""
        clients = [socket.create_connection(self.address) for _ in range(20)]
        for i, c in enumerate(clients):
            c.sendall(bytes([i]))
        seen = [self.listener.accept()[0].recv(1)[0] for _ in clients]
        self.assertEqual(seen, list(range(20)))

    def test_file(self):
        a, b = self.pair()
        with tempfile.TemporaryFile() as f:
            data = os.urandom(3 << 20)
            f.write(data)
            f.flush()
            t = threading.Thread(target=lambda: self.assertEqual(a.sendfile(f, 5), len(data) - 5))
            t.start()
            self.assertEqual(receive(b, len(data) - 5), data[5:])
            t.join()


class Options(Shim):
    def test_nonblocking(self):
        a, b = self.pair()
        b.setblocking(False)
        self.assertRaises(BlockingIOError, b.recv, 1)
        fcntl.fcntl(b, fcntl.F_SETFL, fcntl.fcntl(b, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        self.assertFalse(fcntl.fcntl(b, fcntl.F_GETFL) & os.O_NONBLOCK)
        fcntl.ioctl(a, 0x5421, struct.pack("i", 1))  # FIONBIO
        self.assertTrue(fcntl.fcntl(a, fcntl.F_GETFL) & os.O_NONBLOCK)
        with self.assertRaises(BlockingIOError):
            while True:
                a.send(b"x" * 65536)
        self.listener.setblocking(False)
        self.assertRaises(BlockingIOError, self.listener.accept)

    def test_bytes_waiting(self):
        a, b = self.pair()
        a.sendall(b"x" * 300)
        select.select([b], [], [])
        n = array.array("i", [0])
        fcntl.ioctl(b, termios.FIONREAD, n)
        self.assertEqual(n[0], 300)

    def test_timeouts(self):
        a, _ = self.pair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
        begin = time.monotonic()
        self.assertRaises(BlockingIOError, a.recv, 1)
        self.assertGreater(time.monotonic() - begin, 0.15)

    def test_timeouts_below_a_millisecond(self):
        a, b = self.pair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 500))
        late = threading.Timer(10, b.sendall, (b"x",))
        late.start()
        self.assertRaises(BlockingIOError, a.recv, 1)
        late.cancel()

    def full(self, s):
        """Sends without anybody who receives until the limit ends a call, and once more."""
        s.setblocking(True)
        ended = 0
        while ended < 2:
            try:
                ended = 0 if os.write(s.fileno(), b"x" * 65536) else 9
            except BlockingIOError:
                ended += 1

    def test_timeouts_of_sends(self):
        """SO_SNDTIMEO of a connection's both ends, and of a listener's connection."""
        limit = struct.pack("ll", 0, 20000)
        a, b = self.pair()
        for s in (a, b):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self.full(s)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        c, d = self.pair()
        self.assertEqual(d.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16), a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))
        self.assertEqual(c.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16), bytes(16))
        self.full(d)

    def test_values(self):
        a, b = self.pair()
        for s in (a, b):
            self.assertEqual(s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE), socket.SOCK_STREAM)
            self.assertEqual(s.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN), socket.AF_INET)
            self.assertEqual(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.assertNotEqual(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 0)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
            self.assertEqual(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 77)
            self.assertRaises(OSError, s.setsockopt, socket.IPPROTO_TCP, 9999, 1)
            self.assertEqual(len(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)), 104)


    def test_inherited(self):
        """A connection has the options of its listener, and those that were set before it connected."""
        options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                   (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77), (socket.SOL_SOCKET, socket.SO_RCVBUF, 50000)]
        client, plain = socket.socket(), socket.socket()
        for s in (self.listener, client, plain):
            for level, name, value in options:
                s.setsockopt(level, name, value)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
        client.connect(self.address)
        server, _ = self.listener.accept()
        for s in (client, server):
            for level, name, _ in options:
                self.assertEqual(s.getsockopt(level, name), plain.getsockopt(level, name))
        server.setblocking(True)
        self.assertRaises(BlockingIOError, os.read, server.fileno(), 1)


class Waits(Shim):
    def test_select(self):
        a, b = self.pair()
        self.assertEqual(select.select([a, b], [a], [], 0.05), ([], [a], []))
        a.send(b"x")
        self.assertEqual(select.select([b, self.listener], [], [], 5), ([b], [], []))
        r, w = os.pipe()
        os.write(w, b"y")
        self.assertEqual(sorted(select.select([b, r], [], [], 5)[0], key=lambda x: x == r), [b, r])

    def test_select_accept(self):
        c = socket.create_connection(self.address)
        self.assertEqual(select.select([self.listener], [], [], 5)[0], [self.listener])
        self.listener.accept()[0].send(b"x")
        self.assertEqual(c.recv(1), b"x")

    def test_poll(self):
        a, b = self.pair()
        p = select.poll()
        p.register(b, select.POLLIN | select.POLLRDHUP)
        self.assertEqual(p.poll(20), [])
        threading.Timer(0.1, a.send, (b"x",)).start()
        self.assertEqual(p.poll(5000), [(b.fileno(), select.POLLIN)])
        b.recv(1)
        a.shutdown(socket.SHUT_WR)
        self.assertEqual(p.poll(5000), [(b.fileno(), select.POLLIN | select.POLLRDHUP)])

    def test_end_behind_data(self):
        """The peer's end is told although nobody has read what came before it."""
        a, b = self.pair()
        a.send(b"x")
        a.shutdown(socket.SHUT_WR)
        p = select.poll()
        p.register(b, select.POLLRDHUP)
        self.assertEqual(p.poll(5000), [(b.fileno(), select.POLLRDHUP)])
        e = select.epoll()
        e.register(b, select.EPOLLRDHUP)
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLRDHUP)])
        e.modify(b, select.EPOLLRDHUP | select.EPOLLIN | select.EPOLLET)
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLRDHUP | select.EPOLLIN)])
        self.assertEqual(b.recv(10), b"x")

    def test_epoll_levels(self):
        a, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLIN)
        e.register(self.listener, select.EPOLLIN)
        self.assertEqual(e.poll(0.02), [])
        a.send(b"xy")
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLIN)])
        b.recv(1)
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLIN)])
        b.recv(1)
        self.assertEqual(e.poll(0.02), [])
        e.modify(b, select.EPOLLOUT)
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLOUT)])
        e.unregister(b)
        self.assertEqual(e.poll(0.02), [])
        self.assertRaises(FileNotFoundError, e.modify, b, select.EPOLLIN)
        e.register(b, select.EPOLLIN)
        self.assertRaises(FileExistsError, e.register, b, select.EPOLLIN)
        b.close()
        self.assertEqual(e.poll(0.02), [])

    def test_epoll_edges(self):
        a, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLOUT)])
        self.assertEqual(e.poll(0.02), [])
        a.send(b"xy")
        self.assertEqual(e.poll(5)[0][1] & select.EPOLLIN, select.EPOLLIN)
        self.assertEqual(e.poll(0.02), [])
        e.modify(b, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        self.assertEqual(e.poll(5)[0][1] & select.EPOLLIN, select.EPOLLIN)
        self.assertEqual(e.poll(0.02), [])
        b.setblocking(False)
        b.recv(10)
        self.assertRaises(BlockingIOError, b.recv, 1)
        a.send(b"z")
        self.assertEqual(e.poll(5)[0][1] & select.EPOLLIN, select.EPOLLIN)
        with self.assertRaises(BlockingIOError):
            while True:
                b.send(b"x" * 65536)
        self.assertEqual([n for _, n in e.poll(0.02) if n & select.EPOLLOUT], [])
        threading.Thread(target=lambda: [a.recv(1 << 20) for _ in range(3)]).start()
        self.assertTrue(e.poll(5)[0][1] & select.EPOLLOUT)

    def test_epoll_edge_behind_a_part(self):
        """A program that is told of a part of its bytes waits for the edge before it sends the rest."""
        a, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLOUT | select.EPOLLET)
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLOUT)])
        b.setblocking(False)
        sent = b.send(bytes(1 << 24))
        self.assertLess(sent, 1 << 24)
        reader = threading.Thread(target=lambda: a.recv(sent, socket.MSG_WAITALL))
        reader.start()
        self.assertEqual(e.poll(5), [(b.fileno(), select.EPOLLOUT)])
        reader.join()

    def test_epoll_edges_of_the_kernel(self):
        """An edge of an ordinary descriptor beside a socket of ours is told once, and not lost."""
        _, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLIN)
        r, w = os.pipe()
        e.register(r, select.EPOLLIN | select.EPOLLET)
        os.write(w, b"x")
        self.assertEqual(e.poll(5), [(r, select.EPOLLIN)])
        self.assertEqual(e.poll(0.02), [])

    def test_epoll_signal(self):
        """A signal ends a wait, with sockets of ours in the epoll and without."""
        class Rang(Exception):
            pass

        def ring(*_):
            raise Rang
        signal.signal(signal.SIGUSR1, ring)
        a, b = self.pair()
        e = select.epoll()
        for wanted in (b, None):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            begin = time.monotonic()
            self.assertRaises(Rang, e.poll, 5)
            self.assertLess(time.monotonic() - begin, 4)
            if wanted:
                e.register(wanted, select.EPOLLIN)
        a.close()

    def test_epoll_edge_while_waiting(self):
        """A worker reads all while another thread waits: it is told of what comes after."""
        a, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLIN | select.EPOLLET)
        a.send(b"x")
        self.assertEqual(len(e.poll(5)), 1)
        got = []
        t = threading.Thread(target=lambda: got.append(e.poll(10)))
        t.start()
        time.sleep(0.1)
        b.recv(1)
        time.sleep(0.1)
        a.send(b"y")
        t.join()
        self.assertEqual(got, [[(b.fileno(), select.EPOLLIN)]])

    def test_epoll_oneshot(self):
        a, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLIN | select.EPOLLONESHOT)
        a.send(b"x")
        self.assertEqual(len(e.poll(5)), 1)
        self.assertEqual(e.poll(0.02), [])
        e.modify(b, select.EPOLLIN | select.EPOLLONESHOT)
        self.assertEqual(len(e.poll(5)), 1)

    def test_epoll_nested(self):
        a, b = self.pair()
        inner, outer = select.epoll(), select.epoll()
        outer.register(inner, select.EPOLLIN)
        inner.register(b, select.EPOLLIN)
        r, w = os.pipe()
        outer.register(r, select.EPOLLIN)
        self.assertEqual(outer.poll(0.02), [])
        a.send(b"x")
        self.assertEqual(outer.poll(5), [(inner.fileno(), select.EPOLLIN)])
        self.assertEqual(select.select([inner], [], [], 5)[0], [inner])
        self.assertEqual(inner.poll(5), [(b.fileno(), select.EPOLLIN)])
        b.recv(1)
        os.write(w, b"x")
        self.assertEqual(outer.poll(5), [(r, select.EPOLLIN)])
        self.assertEqual(os.read(r, 1), b"x")
        again = os.dup(inner.fileno())
        os.close(again)
        a.send(b"x")
        self.assertEqual(outer.poll(5), [(inner.fileno(), select.EPOLLIN)])

    def test_epoll_changes_meanwhile(self):
        a, b = self.pair()
        e = select.epoll()
        got = []
        t = threading.Thread(target=lambda: got.append(e.poll(10)))
        t.start()
        time.sleep(0.1)
        a.send(b"x")
        e.register(b, select.EPOLLIN)
        t.join()
        self.assertEqual(got, [[(b.fileno(), select.EPOLLIN)]])

    def test_added_before_connect(self):
        e = select.epoll()
        c = socket.socket()
        e.register(c, select.EPOLLIN | select.EPOLLOUT)
        c.connect(self.address)
        b, _ = self.listener.accept()
        self.assertEqual(e.poll(5), [(c.fileno(), select.EPOLLOUT)])
        e.modify(c, select.EPOLLIN)
        b.send(b"x")
        self.assertEqual(e.poll(5), [(c.fileno(), select.EPOLLIN)])

    def test_close_ends_others_wait(self):
        """The peer sees the end although another thread waits for the descriptor."""
        a, b = self.pair()
        e = select.epoll()
        e.register(b, select.EPOLLIN)
        threading.Thread(target=e.poll, args=(3,), daemon=True).start()
        time.sleep(0.1)
        b.close()
        a.settimeout(2)
        self.assertEqual(a.recv(1), b"")

    def test_signal(self):
        a, b = self.pair()
        rang = []
        signal.signal(signal.SIGUSR1, lambda *x: rang.append(1))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        threading.Timer(0.4, a.send, (b"x",)).start()
        self.assertEqual(select.select([b], [], [], 5)[0], [b])
        self.assertEqual(rang, [1])


class Descriptors(Shim):
    def test_dup(self):
        a, b = self.pair()
        c = a.dup()
        a.close()
        c.send(b"x")
        self.assertEqual(b.recv(1), b"x")
        fd = os.open("/dev/null", os.O_RDONLY)
        os.dup2(c.fileno(), fd)
        c.close()
        os.write(fd, b"y")
        self.assertEqual(b.recv(1), b"y")
        os.close(fd)
        self.assertEqual(b.recv(1), b"")

    def test_kind(self):
        a, b = self.pair()
        self.assertTrue(os.fstat(a.fileno()).st_mode & 0o140000 == 0o140000)
        self.assertFalse(os.get_inheritable(a.fileno()))
        self.assertFalse(os.get_inheritable(b.fileno()))

    def test_child_serves(self):
        """The server's child has the connection, its parent closes it."""
        a, b = self.pair()
        if os.fork() == 0:
            data = receive(b, 100000)
            b.sendall(data[::-1])
            os._exit(0)
        b.close()
        data = os.urandom(100000)
        a.sendall(data)
        self.assertEqual(receive(a, 100000), data[::-1])
        self.assertEqual(a.recv(1), b"")

    def test_program_serves(self):
        """Another program has the connection as its standard input and output."""
        a, b = self.pair()
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        p = subprocess.Popen(["tr", "a-z", "A-Z"], stdin=b, stdout=b, env=environment)
        b.close()
        a.sendall(b"hello")
        a.shutdown(socket.SHUT_WR)
        self.assertEqual(receive(a, 10), b"HELLO")
        self.assertEqual(p.wait(), 0)

    def test_child_and_parent(self):
        """Both keep the connection. The child reads first; what it writes comes before what its parent writes after its end."""
        a, b = self.pair()
        child = os.fork()
        if child == 0:
            b.sendall(b.recv(10) + b" child")
            os._exit(0)
        a.sendall(b"hello")
        os.waitpid(child, 0)
        b.sendall(b" parent")
        self.assertEqual(receive(a, 18), b"hello child parent")
        a.sendall(b"again")
        self.assertEqual(receive(b, 5), b"again")
        b.close()
        self.assertEqual(a.recv(1), b"")

    def test_children_take_turns(self):
        a, b = self.pair()
        for i in range(3):
            child = os.fork()
            if child == 0:
                grandchild = os.fork()
                if grandchild == 0:
                    e = select.epoll()
                    e.register(b, select.EPOLLIN)
                    assert e.poll(20)
                    b.sendall(b.recv(10).upper())
                    os._exit(0)
                os.waitpid(grandchild, 0)
                b.sendall(b"%d" % i)
                os._exit(0)
            a.sendall(b"turn")
            self.assertEqual(receive(a, 5), b"TURN%d" % i)
            os.waitpid(child, 0)

    def test_child_of_a_stopped_parent(self):
        """It gets no answer, and goes on."""
        a, b = self.pair()
        me, (r, w) = os.getpid(), os.pipe()
        watcher = os.fork()
        if watcher == 0:
            b.close()
            os.read(r, 1)
            time.sleep(0.2)
            os.kill(me, signal.SIGCONT)
            os._exit(0)
        child = os.fork()
        if child == 0:
            os.kill(me, signal.SIGSTOP)
            ready = threading.Timer(0.3, os.write, (w, b"x"))
            ready.start()
            b.sendall(b"stopped")
            ready.join()  # the parent may have answered before it stopped
            os._exit(0)
        self.assertEqual(receive(a, 7), b"stopped")
        os.waitpid(child, 0)
        os.waitpid(watcher, 0)

    def test_child_closes_all(self):
        """A daemon's child: where it would ask its parent another file has the number."""
        a, b = self.pair()
        child = os.fork()
        if child == 0:
            for fd in range(3, 2000):
                if fd != b.fileno():
                    try:
                        os.close(fd)
                    except OSError:
                        pass
            for _ in range(1100):
                os.dup(2)
            b.sendall(b"x")
            os._exit(0)
        os.waitpid(child, 0)
        b.close()
        self.assertEqual(receive(a, 1), b"x")

    def test_program_and_parent(self):
        """A program has the connection as standard input and output while its parent waits for it, as of inetd."""
        a, b = self.pair()
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        a.sendall(b"hello")
        a.shutdown(socket.SHUT_WR)
        done = subprocess.run(["tr", "a-z", "A-Z"], stdin=b, stdout=b, env=environment, timeout=20, check=False)
        self.assertEqual(done.returncode, 0)
        b.sendall(b"!")
        self.assertEqual(receive(a, 6), b"HELLO!")
        fd = b.fileno()
        spawned = os.posix_spawn("/bin/echo", ["echo", "spawned"], environment, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)])
        os.waitpid(spawned, 0)
        self.assertEqual(receive(a, 8), b"spawned\n")

    def test_program_beside(self):
        """A program that runs meanwhile leaves the connection alone."""
        a, b = self.pair()
        self.assertEqual(subprocess.run(["true"], check=False).returncode, 0)
        self.assertEqual(os.system("true"), 0)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        a.send(b"x")
        self.assertEqual(b.recv(1), b"x")

    def test_sent(self):
        a, b = self.pair()
        x, y = socket.socketpair()
        socket.send_fds(x, [b"fd"], [b.fileno()])
        b.close()
        fd = socket.recv_fds(y, 10, 1)[1][0]
        a.send(b"x")
        self.assertEqual(os.read(fd, 1), b"x")

    def test_listener_of_a_program(self):
        """It inherits a listener that blocks, and one that does not."""
        code = "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\nc, _ = s.accept()\nc.sendall(c.recv(10).upper())"
        for blocks in (True, False):
            listener = socket.create_server(("127.0.0.1", 0))
            listener.setblocking(blocks)
            os.set_inheritable(listener.fileno(), True)
            p = subprocess.Popen([sys.executable, "-c", code, str(listener.fileno())], close_fds=False, stderr=subprocess.DEVNULL)
            if blocks:
                time.sleep(0.3)  # it waits by then
                with socket.create_connection(listener.getsockname()) as a:
                    a.sendall(b"hello")
                    self.assertEqual(receive(a, 5), b"HELLO")
            self.assertEqual(p.wait() == 0, blocks)
            self.tcp = True  # if this process has the port still
            listener.close()

    def test_listener_of_a_child(self):
        """The parent listens and never waits; its child serves, by rsockets, too."""
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        r, w = os.pipe()
        child = os.fork()
        if child == 0:
            e = select.epoll()
            e.register(listener, select.EPOLLIN)
            os.write(w, b"x")
            e.poll(10)
            c, _ = listener.accept()
            c.sendall(c.recv(10) + b"!")
            os._exit(0)
        os.read(r, 1)
        a = socket.create_connection(("127.0.0.1", port))
        a.sendall(b"hello")
        self.assertEqual(receive(a, 6), b"hello!")
        self.assertNotIn(port, tcp_ports())
        os.waitpid(child, 0)


class Inherited(Shim):
    """Sockets that the program has from others: only a pair that the shim of its user, or of root, has made is TCP's."""
    NAME = "\0anyverbs-tcp4" + "%08x%08x" % (os.getpid(), 0) + 2 * ("00000000000000000000ffff" + "7f000001" + "03ff")

    def send_end(self, over, named):
        """Sends an end of a pair, the other one with a name."""
        near, far = socket.socketpair()
        far.bind(named)
        socket.send_fds(over, [b"x"], [near.fileno()])
        return far

    def receive_end(self, over):
        return socket.socket(fileno=socket.recv_fds(over, 1, 1)[1][0])

    def test_pair_of_this_user(self):
        a, b = socket.socketpair()
        with self.send_end(a, self.NAME):
            end = self.receive_end(b)
            self.assertEqual((end.family, end.getpeername()), (socket.AF_INET, ("127.0.0.1", 1023)))

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_pair_of_another_user(self):
        a, b = socket.socketpair()
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            b.close()
            with self.send_end(a, self.NAME):
                a.recv(1)
            os._exit(0)
        end = self.receive_end(b)
        self.assertEqual((end.family, end.getpeername()), (socket.AF_UNIX, self.NAME.encode()))
        b.send(b"x")
        os.waitpid(child, 0)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_pair_of_root(self):
        """As inetd's, which runs its servers as other users."""
        a, b = socket.socketpair()
        with self.send_end(a, self.NAME):
            child = os.fork()
            if child == 0:
                os.setuid(65534)
                os._exit(self.receive_end(b).family != socket.AF_INET)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_client_of_a_unix_socket(self):
        """Any user may connect, with a name of his choice."""
        server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        server.bind("")
        server.listen()
        client.bind(self.NAME)
        client.connect(server.getsockname())
        fd, _ = server._accept()
        end = socket.socket(fileno=fd)
        self.assertEqual((end.family, end.getpeername()), (socket.AF_UNIX, self.NAME.encode()))
        self.assertRaises(OSError, end.setsockopt, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Plain(Shim):
    tcp = True

    def test_peer_without(self):
        """Programs outside: a server that has no rsockets, and a client."""
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        code = "import socket; l = socket.create_server(('127.0.0.1', 0)); print(l.getsockname()[1], flush=True); c = l.accept()[0]; c.sendall(c.recv(5))"
        p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True)
        c = socket.create_connection(("127.0.0.1", int(p.stdout.readline())))
        c.sendall(b"hello")
        self.assertEqual(receive(c, 5), b"hello")
        p.wait()
        code = f"import socket; c = socket.create_connection({self.address}); c.sendall(b'hello'); print(c.recv(5))"
        p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True)
        b, _ = self.listener.accept()
        b.sendall(receive(b, 5))
        self.assertEqual(p.communicate()[0], "b'hello'\n")

    def test_refused(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.assertRaises(ConnectionRefusedError, socket.create_connection, free.getsockname())

    def test_epoll_beside_the_librarys_own(self):
        """The library's own epoll sets are none of the program's, whose sets have the same numbers later."""
        self.listener.close()
        self.test_refused()
        for _ in range(5):
            with select.epoll() as e, socket.create_server(("127.0.0.1", 0)) as listener:
                e.register(listener, select.EPOLLIN)
                self.assertEqual(e.poll(0), [])

    def test_udp(self):
        a, b = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
        a.bind(("127.0.0.1", 0))
        b.sendto(b"x", a.getsockname())
        self.assertEqual(a.recv(1), b"x")


class LowPorts(Shim):
    """A port below 1,024 of another host need not be a privileged program's by RDMA."""
    tcp = True

    def setUp(self):
        super().setUp()
        for port in random.sample(range(600, 1024), 100):
            with contextlib.suppress(OSError):
                self.low = socket.create_server(("0.0.0.0", port))
                break
        self.port = self.low.getsockname()[1]

    def is_tcp(self, host):
        with socket.create_connection((host, self.port)) as client, self.low.accept()[0] as server:
            client.sendall(b"hello")
            self.assertEqual(receive(server, 5), b"hello")
            return self.port in tcp_ports()

    @unittest.skipIf(os.geteuid() != 0, "only root binds such a port")
    def test_of_another_host(self):
        self.assertTrue(self.is_tcp("127.0.0.9"))

    @unittest.skipIf(os.geteuid() != 0, "only root binds such a port")
    def test_of_this_host(self):
        self.assertFalse(self.is_tcp("127.0.0.1"))

    @unittest.skipIf(os.geteuid() != 0 or not STANDIN, "only root binds such a port; nodes share no address")
    def test_named(self):
        os.environ["ANYVERBS_LOW_PORTS"] = f"1023,{self.port}"
        self.assertFalse(self.is_tcp("127.0.0.9"))
        os.environ["ANYVERBS_LOW_PORTS"] = "80,nonsense"
        self.assertTrue(self.is_tcp("127.0.0.9"))


class StoppedPeers(Shim):
    """Peers that acknowledge nothing. An end that waited for one would wait for 10 s; so many of them outlast the test's alarm."""
    ENDS = 8
    ANSWER = b"answer" * 1000

    def setUp(self):
        os.environ["ANYVERBS_PATHS"] = "udp"  # memory that both ends map takes what is sent to a stopped process
        super().setUp()
        self.pair()  # from now on the port is this process'

    def stop_clients(self):
        """The pid of a process that has so many connections and stops. It ends with 0 if it reads the whole answer and its end from each, once it goes on."""
        child = os.fork()
        if child != 0:
            self.assertTrue(os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]))
            return child
        clients = [socket.create_connection(self.address) for _ in range(self.ENDS)]
        assert self.address[1] not in tcp_ports()
        os.kill(os.getpid(), signal.SIGSTOP)
        answers = [receive(c, len(self.ANSWER) + 1) for c in clients]
        os._exit(answers != [self.ANSWER] * self.ENDS)

    def go_on(self, child):
        os.kill(child, signal.SIGCONT)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def answer(self, end):
        child = self.stop_clients()
        for _ in range(self.ENDS):
            server, _ = self.listener.accept()
            server.sendall(self.ANSWER)
            end(server)
        client, server = self.pair()
        server.sendall(b"others are served")
        self.assertEqual(receive(client, 17), b"others are served")
        self.go_on(child)

    def test_close(self):
        self.answer(lambda server: server.close())

    def test_shutdown(self):
        kept = []
        self.answer(lambda server: (server.shutdown(socket.SHUT_WR), kept.append(server)))

    def test_dup2(self):
        with open("/dev/null", "rb") as null:
            self.answer(lambda server: os.close(os.dup2(null.fileno(), server.detach())))

    def test_relayed(self):
        """A child has each connection."""
        def end(server):
            child = os.fork()
            if child == 0:
                os._exit(server.send(b"") != 0)
            server.close()
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.answer(end)

    def test_exit(self):
        """A process that exits waits for the peers of what it has closed, and of what it has not."""
        program = ("import socket\n"
                   "listener = socket.create_server(('127.0.0.1', 0))\n"
                   "mine = socket.create_connection(listener.getsockname()), listener.accept()\n"
                   "print(listener.getsockname()[1], flush=True)\n"
                   f"servers = [listener.accept()[0] for _ in range({self.ENDS})]\n"
                   "for s in servers:\n"
                   f"    s.sendall({self.ANSWER!r})\n"
                   "for s in servers[1:]:\n"
                   "    s.close()\n"
                   "print('closed', flush=True)\n")
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as p:
            self.address = ("127.0.0.1", int(p.stdout.readline()))
            child = self.stop_clients()
            self.assertEqual(p.stdout.readline(), b"closed\n")
            self.go_on(child)
            self.assertEqual(p.wait(), 0)


class Servers(Shim):
    def test_asyncio(self):
        async def serve(reader, writer):
            data = await reader.readexactly(100000)
            writer.write(data[::-1])
            await writer.drain()
            writer.close()

        async def run():
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]

            async def client():
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                data = os.urandom(100000)
                writer.write(data)
                self.assertEqual(await reader.readexactly(100000), data[::-1])
                self.assertEqual(await reader.read(), b"")
                writer.close()
            await asyncio.gather(*(client() for _ in range(30)))
            self.assertNotIn(port, tcp_ports())
        asyncio.run(run())

    def test_forking(self):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                line = self.rfile.readline()
                self.wfile.write(line.upper() + str(os.getpid()).encode())

        class Server(socketserver.ForkingMixIn, socketserver.TCPServer):
            pass

        server = Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        for _ in range(5):
            c = socket.create_connection(server.server_address)
            c.sendall(b"hello\n")
            answer = receive(c, 100)
            self.assertTrue(answer.startswith(b"HELLO\n"))
            self.assertNotEqual(int(answer[6:]), os.getpid())
        self.assertNotIn(server.server_address[1], tcp_ports())
        server.shutdown()

    def test_selectors(self):
        sel = selectors.DefaultSelector()
        self.listener.setblocking(False)
        sel.register(self.listener, selectors.EVENT_READ)
        clients = [socket.create_connection(self.address) for _ in range(80)]
        for i, c in enumerate(clients):
            c.sendall(b"%03d" % i)
        served = 0
        while served < len(clients):
            for key, _ in sel.select(5):
                if key.fileobj is self.listener:
                    sel.register(self.listener.accept()[0], selectors.EVENT_READ)
                else:
                    key.fileobj.sendall(key.fileobj.recv(3))
                    sel.unregister(key.fileobj)
                    key.fileobj.close()
                    served += 1
        for i, c in enumerate(clients):
            self.assertEqual(receive(c, 3), b"%03d" % i)


def names(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from names(t)
        else:
            yield t.id().removeprefix("__main__.")


def main():
    shim, standin, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    environment = dict(os.environ, SHIM_TEST="standin" if standin != "-" else "stack", LD_PRELOAD=shim)
    if standin != "-":
        environment["LD_LIBRARY_PATH"] = standin
    failed = 0
    tests = wanted or list(names(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    for test in tests:
        done = subprocess.run([sys.executable, __file__, test], env=environment, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode != 0:
            failed += 1
            print(f"--- {test}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return failed != 0


if SHIM:
    unittest.main()
elif __name__ == "__main__":
    sys.exit(main())
