#!/usr/bin/env python3
"""rsockets.py: programs that know TCP only, over `anyverbs run --rsockets`, for the client tables.

usage: rsockets.py STACK serve NAME PORT [FOLDER]
       rsockets.py STACK ask NAME PORT ADDRESS [FOLDER]

serve becomes the server NAME. ask runs clients against it, judges what they get, and has the server end, if it is redis or postgres: it may
be another user's. While they run it reads the counters of the node's processes: their bytes went by RDMA. And no TCP connection of this
host may have the port. FOLDER is empty at first, and both sides may write there: nginx, redis, openssl and postgres need it.
NAME: iperf3, nginx, redis, memcached, openssl, inetd (a program as the server's child, by socat), postgres (not as root), rstream
(which has TCP, too), or a Python server: blocking, select, selectors, asyncio, forking.
With "librspreload:" in front of it the programs run over Debian's librspreload.so, on top of anyverbs' librdmacm, instead.
"""
import asyncio
import json
import os
import selectors
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time

# nginx forgets its environment; the node of its workers is that of the row's.
NGINX = """
env ANYVERBS_NODE; env ANYVERBS_ADDR; {user}worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/error.log info;
events {{ worker_connections 64; }}
http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder}; client_max_body_size 100m; server {{ listen {port}; root {folder};
  location /put/ {{ dav_methods PUT; dav_access all:r; create_full_put_path on; }} }} }}
"""
NGINX_FILE = 10_000_000
RSTREAM_MESSAGES = 10_000  # half a second each way: a shorter run ends between two looks at the counters
MIB = 1 << 20
POSTGRES = "/usr/lib/postgresql/15/bin"
PRELOAD = "librspreload:"
LIBRSPRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"


def run_prefix(stack, name):
    """(command in front of a program, the name of the program)"""
    tool = os.path.join(stack, "bin", "anyverbs")
    if name.startswith(PRELOAD):
        return [tool, "run", "env", f"LD_PRELOAD={LIBRSPRELOAD}"], name[len(PRELOAD):]
    return [tool, "run", "--rsockets"], name


def serve_nginx(port, folder):
    with open(f"{folder}/file", "wb") as f:
        f.write(os.urandom(NGINX_FILE))
    with open(f"{folder}/conf", "w", encoding="ascii") as f:
        f.write(NGINX.format(port=port, folder=folder, user="user root; " if os.getuid() == 0 else ""))
    return ["nginx", "-e", f"{folder}/error.log", "-c", f"{folder}/conf"]


def serve_openssl(port, folder):
    os.chdir(folder)  # s_server -WWW gives the files of its folder
    with open("file", "wb") as f:
        f.write(os.urandom(NGINX_FILE))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "certificate", "-days", "2",
                    "-subj", "/CN=localhost"], check=True, capture_output=True)
    return ["openssl", "s_server", "-quiet", "-accept", str(port), "-key", "key", "-cert", "certificate", "-WWW"]


def serve_postgres(port, folder):
    os.environ["HOME"] = folder
    subprocess.run([f"{POSTGRES}/initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "postgres", "-N"], check=True,
                   capture_output=True)
    with open(f"{folder}/data/pg_hba.conf", "w", encoding="ascii") as f:
        f.write("host all all all trust\n")
    return [f"{POSTGRES}/postgres", "-D", f"{folder}/data", "-p", str(port), "-k", "", "-c", "listen_addresses=0.0.0.0", "-c", "fsync=off"]


def server_command(name, port, folder):
    if name == "iperf3":
        return ["iperf3", "-s", "-1", "-p", str(port)]
    if name == "rstream":
        return ["rstream", "-T", "s", "-T", "v", "-p", str(port), "-S", "65536", "-C", str(RSTREAM_MESSAGES)]
    if name == "nginx":
        return serve_nginx(port, folder)
    if name == "redis":
        return ["redis-server", "--port", str(port), "--save", "", "--protected-mode", "no", "--daemonize", "no", "--dir", folder]
    if name == "memcached":
        return ["memcached", "-p", str(port), "-U", "0", "-t", "4", *(["-u", "root"] if os.getuid() == 0 else [])]
    if name == "openssl":
        return serve_openssl(port, folder)
    if name == "inetd":
        return ["socat", f"TCP-LISTEN:{port},reuseaddr,fork,backlog=64", "EXEC:/bin/cat"]
    if name == "postgres":
        return serve_postgres(port, folder)
    return ["/usr/bin/python3", __file__, "-", "python", name, str(port)]


# ---- the Python servers: each sends back what it gets; a connection that says b"end\n" ends the server ----

def serve_blocking(listener):
    while True:
        c, _ = listener.accept()
        for data in iter(lambda: c.recv(65536), b""):
            if data == b"end\n":
                return
            c.sendall(data)
        c.close()


def serve_ready(listener, wait):
    """`wait` takes the sockets and gives those that are readable."""
    open_ones = {listener}
    while True:
        for s in wait(open_ones):
            if s is listener:
                open_ones.add(s.accept()[0])
                continue
            data = s.recv(65536)
            if data == b"end\n":
                return
            if data:
                s.sendall(data)
            else:
                open_ones.discard(s)
                s.close()


def wait_selectors(sockets):
    with selectors.EpollSelector() as sel:
        for s in sockets:
            sel.register(s, selectors.EVENT_READ)
        return [key.fileobj for key, _ in sel.select()]


async def serve_asyncio(listener):
    ended = asyncio.Event()

    async def serve(reader, writer):
        while data := await reader.read(65536):
            if data == b"end\n":
                ended.set()
            writer.write(data)
            await writer.drain()
        writer.close()
    async with await asyncio.start_server(serve, sock=listener):
        await ended.wait()


class Forking(socketserver.ForkingMixIn, socketserver.TCPServer):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            for data in iter(lambda: self.request.recv(65536), b""):
                if data == b"end\n":
                    os.kill(os.getppid(), 15)
                self.request.sendall(data)

    def __init__(self, listener):
        super().__init__(listener.getsockname(), self.Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener


def python_server(name, port):
    listener = socket.create_server(("0.0.0.0", port))
    if name == "blocking":
        serve_blocking(listener)
    elif name == "select":
        serve_ready(listener, lambda s: select.select(s, [], [])[0])
    elif name == "selectors":
        serve_ready(listener, wait_selectors)
    elif name == "asyncio":
        asyncio.run(serve_asyncio(listener))
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        Forking(listener).serve_forever()


# ---- clients ----

def python_client(port, address):
    for _ in range(3):
        with socket.create_connection((address, port)) as c:
            data = os.urandom(4 * MIB)
            t = threading.Thread(target=c.sendall, args=(data,))
            t.start()
            got = bytearray()
            while len(got) < len(data):
                piece = c.recv(65536)
                assert piece, "the stream ended early"
                got += piece
            t.join()
            assert got == data, "another stream came back"
    with socket.create_connection((address, port)) as c:
        c.sendall(b"end\n")
        try:
            c.recv(100)
        except ConnectionResetError:
            pass  # a child's connection ends with its parent


def memcached_client(port, address):
    """Clients of its text protocol at once, each with a pipeline."""
    def one(number):
        with socket.create_connection((address, port)) as c, c.makefile("rwb") as f:
            for i in range(200):
                value = os.urandom(1000 + i)
                f.write(b"set k%d-%d 0 0 %d\r\n%s\r\nget k%d-%d\r\n" % (number, i, len(value), value, number, i))
                f.flush()
                assert f.readline() == b"STORED\r\n"
                assert f.readline().startswith(b"VALUE")
                assert f.read(len(value) + 2) == value + b"\r\n" and f.readline() == b"END\r\n"
            done.append(number)
    done = []
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(done) == len(threads)


def inetd_client(port, address):
    data = os.urandom(MIB)
    for _ in range(5):
        with socket.create_connection((address, port)) as c:
            t = threading.Thread(target=lambda s=c: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
            t.start()
            with c.makefile("rb") as f:
                assert f.read() == data
            t.join()


CLIENTS = {"memcached": memcached_client, "inetd": inetd_client}


def client_commands(name, port, address, folder):
    """Commands, each with what its output must have."""
    if name == "iperf3":
        yield ["iperf3", "-c", address, "-p", str(port), "-t", "1"], "receiver"
    elif name == "rstream":
        yield ["rstream", "-T", "s", "-T", "v", "-s", address, "-p", str(port), "-S", "65536", "-C", str(RSTREAM_MESSAGES)], "64k"
    elif name == "nginx":
        yield ["curl", "-s", "-S", "-o", f"{folder}/got", "-w", "%{http_code} %{size_download}", f"http://{address}:{port}/file"], \
            f"200 {NGINX_FILE}"
        yield ["cmp", f"{folder}/got", f"{folder}/file"], ""
        yield ["curl", "-s", "-S", "-w", "%{http_code}", "-T", f"{folder}/got", f"http://{address}:{port}/put/file"], "201"
        yield ["cmp", f"{folder}/got", f"{folder}/put/file"], ""
        yield ["curl", "-s", "-S", "-Z", "--parallel-max", "8", "-o", "/dev/null", "-w", "%{http_code}\n",
               f"http://{address}:{port}/file?[1-16]"], "200\n" * 16
    elif name == "redis":
        yield ["redis-cli", "-h", address, "-p", str(port), "set", "key", "value"], "OK"
        yield ["redis-cli", "-h", address, "-p", str(port), "get", "key"], "value"
        yield ["redis-cli", "-h", address, "-p", str(port), "bgsave"], "started"  # a child has all connections, and leaves them alone
        yield ["redis-benchmark", "-h", address, "-p", str(port), "-n", "2000", "-c", "20", "-q", "-t", "set,get,lpush"], "LPUSH"
        yield ["redis-benchmark", "-h", address, "-p", str(port), "-n", "10000", "-c", "200", "-P", "16", "-q", "-t", "set"], "SET"
        yield ["redis-cli", "-h", address, "-p", str(port), "info", "persistence"], "rdb_last_bgsave_status:ok"
    elif name == "openssl":
        yield ["curl", "-s", "-S", "-k", "-o", f"{folder}/got", "-w", "%{size_download}", f"https://{address}:{port}/file"], \
            str(NGINX_FILE)
        yield ["cmp", f"{folder}/got", f"{folder}/file"], ""
        yield ["sh", "-c", f"echo 'GET /certificate HTTP/1.0\n' | openssl s_client -quiet -ign_eof -connect {address}:{port} 2>&1"], "END CERTIFICATE"
    elif name == "postgres":
        bench = [f"{POSTGRES}/pgbench", "-h", address, "-p", str(port), "-U", "postgres"]
        yield [*bench, "-i", "-q", "postgres"], ""
        yield [*bench, "-c", "8", "-j", "2", "-t", "50", "postgres"], "number of failed transactions: 0"
        yield [*bench, "-C", "-S", "-c", "4", "-t", "10", "postgres"], "number of failed transactions: 0"
    else:
        yield ["/usr/bin/python3", __file__, "-", "client", name, str(port), address], ""


def end_server(run, name, port, address, folder):
    """Of the others the runner ends the server."""
    pid = f"{folder}/data/postmaster.pid"
    if name == "postgres":
        with open(pid, encoding="ascii") as f:
            os.kill(int(f.readline()), signal.SIGINT)
    while name == "postgres" and os.path.exists(pid):
        time.sleep(0.05)
    if name == "redis":
        subprocess.run(run + ["redis-cli", "-h", address, "-p", str(port), "shutdown", "nosave"], check=False)


class Watch(threading.Thread):
    """Reads the counters of the node's processes, and TCP's table, until it is told to stop."""

    def __init__(self, stack, port):
        super().__init__(daemon=True)
        self.tool, self.port = os.path.join(stack, "bin", "anyverbs"), port
        self.counts, self.tcp, self.stop = {}, False, threading.Event()
        self.earlier = self.connections()  # those of other programs that had the port

    def connections(self):
        """The ends of TCP's connections of the port, whatever their state."""
        found = set()
        for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
            with open(table, encoding="ascii") as f:
                for line in f.readlines()[1:]:
                    words = line.split()
                    if words[3] != "0A" and f":{self.port:04X}" in (words[1][-5:], words[2][-5:]):
                        found.add((words[1], words[2]))
        return found

    def run(self):
        while not self.stop.wait(0.02):
            self.look()

    def look(self):
        done = subprocess.run([self.tool, "status", "--json"], capture_output=True, text=True, check=False)
        for p in json.loads(done.stdout).get("processes", []) if done.stdout else []:
            c = p.get("counters")  # a process that is just beginning or ending shows none
            if c is not None:
                self.counts[p["pid"]] = c.get("direct_operations", 0) + c.get("rx_packets", 0)
        self.tcp = self.tcp or not self.connections() <= self.earlier


def ask(stack, name, port, address, folder):
    run, name = run_prefix(stack, name)
    watch = Watch(stack, port)
    watch.look()
    before = sum(watch.counts.values())
    watch.start()
    if name == "nginx":
        time.sleep(1)  # clients that come before it has its workers are TCP's
    failed = 0
    for command, wanted in client_commands(name, port, address, folder):
        done = subprocess.run(run + command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0 or wanted not in done.stdout:
            print(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            failed += 1
    watch.look()
    watch.stop.set()
    watch.join()
    moved = sum(watch.counts.values()) - before
    end_server(run, name, port, address, folder)
    print(f"{moved} operations and packets of RDMA; TCP: {'yes' if watch.tcp else 'none'}")
    return failed or watch.tcp or moved < 100


def main():
    if sys.argv[2] == "python":
        python_server(sys.argv[3], int(sys.argv[4]))
        return 0
    if sys.argv[2] == "client":
        CLIENTS.get(sys.argv[3], python_client)(int(sys.argv[4]), sys.argv[5])
        return 0
    stack, action, name, port = sys.argv[1:4] + [int(sys.argv[4])]
    folder = sys.argv[-1]
    if action == "ask":
        return int(ask(stack, name, port, sys.argv[5], folder))
    run, name = run_prefix(stack, name)
    os.execv(run[0], run + server_command(name, port, folder))


if __name__ == "__main__":
    sys.exit(main())
