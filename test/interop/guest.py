"""guest.py: Debian's own kernel in QEMU, with Soft-RoCE (rdma_rxe) on a tap device: the peer that RoCEv2 is judged by.

The guest sees this machine's file system, read-only, under an overlay that is thrown away, so every program here runs there too;
of /tmp, /run and /dev only what it is given (`folders`).
A serial line carries commands in and their output out. QEMU emulates the processor, so this works anywhere, slowly.
Needs root (namespace, tap) and qemu-system-x86, busybox-static, cpio, kmod; downloads the kernel's package once.
"""
import base64
import glob
import os
import shutil
import socket
import subprocess
import tempfile
import time

CACHE = os.path.realpath(os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "anyverbs", "guest"))
PROGRAMS = ("qemu-system-x86_64", "busybox", "cpio", "modprobe", "depmod", "dpkg-deb", "apt-get", "ip")
MODULES = ("virtio_pci virtio_net 9p 9pnet_virtio overlay crc32_generic rdma_rxe ib_uverbs rdma_ucm ib_umad "
           "sch_netem sch_ingress ifb act_mirred cls_matchall").split()

# Time is the host's own cycle counter. Left to itself the guest's kernel doubts it and asks an emulated device instead: each
# look then leaves the emulated processor, is a system call, and is late by as much as somebody else holds QEMU's lock.
CLOCK = "clocksource=tsc tsc=reliable"

# The guest has folders of its own here. What lies below them on the host and is to be seen is in /seen, a line each.
OWN = ("/tmp", "/run", "/dev")

# First program of the guest: drivers, the file system, then CONTROL inside it.
INIT = """#!/bin/sh
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
for m in $(cat /order); do insmod $m 2>/dev/null; done
mkdir -p /host /up; mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host
mount -t tmpfs t /up; mkdir /up/data /up/work /up/root
mount -t overlay -o lowerdir=/host,upperdir=/up/data,workdir=/up/work o /up/root; cd /up/root
n=0; while read -r f; do n=$((n + 1)); mkdir -p /kept/$n; mount -o bind ".$f" /kept/$n; done </seen
for f in proc sys dev; do mount --move /$f $f; done
for f in run tmp dev/shm; do mkdir -p $f; mount -t tmpfs t $f; done
n=0; while read -r f; do n=$((n + 1)); mkdir -p ".$f"; mount -o bind /kept/$n ".$f"; done </seen
ln -sf /proc/self/fd dev/fd
cp /control run/control
exec chroot . /bin/bash /run/control
"""

# One line per command: PORT BASE64. Answers `listening` when PORT is listened on (cmPORT: by an id of the RDMA CM), then
# `done STATUS BASE64-OUTPUT`.
CONTROL = r"""
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
listens() {
	case $1 in
	cm*) rdma resource show cm_id | grep -Eq "state LISTEN .*:${1#cm}( |\$)" ;;
	*) grep -qi ":$(printf %%04X "$1") 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 ;;
	esac
}
export -f listens
ulimit -l unlimited
ip link set lo up
ip link set eth0 mtu %(mtu)s; ip addr add %(addr)s dev eth0; ip addr add %(addr6)s dev eth0 nodad; ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
exec 3<>/dev/ttyS1; stty raw -echo <&3
echo ready >&3
while read -r -u 3 port line; do
	bash -c "$(echo "$line" | base64 -d)" </dev/null >/tmp/out 2>&1 3>&- &
	job=$!
	if [ "$port" != 0 ]; then
		while kill -0 $job 2>/dev/null && ! listens "$port"; do sleep 0.02; done
		echo listening >&3
	fi
	wait $job; status=$?
	echo "done $status $(tail -c 60000 /tmp/out | base64 -w0)" >&3
done
"""


def missing():
    """What keeps a guest from running here, or None."""
    if os.geteuid() != 0:
        return "only root can make a namespace and a tap device"
    absent = [p for p in PROGRAMS if shutil.which(p) is None]
    if absent:
        return "not installed: " + " ".join(absent)
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun"
    try:
        kernel()
    except (subprocess.CalledProcessError, IndexError, OSError) as e:
        return f"no kernel to boot: {e}"
    return None


def kernel():
    """The unpacked package of Debian's kernel: (folder, version)."""
    root = os.path.join(CACHE, "kernel")
    if not os.path.exists(os.path.join(root, "ready")):
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
        depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=True).stdout
        package = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line][0]
        subprocess.run(["apt-get", "download", "-qq", package], cwd=root, check=True, capture_output=True)
        deb = glob.glob(os.path.join(root, "*.deb"))[0]
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
        os.unlink(deb)
        subprocess.run(["depmod", "-b", root, os.listdir(os.path.join(root, "lib/modules"))[0]], check=True)
        open(os.path.join(root, "ready"), "w").close()
    return root, os.listdir(os.path.join(root, "lib/modules"))[0]


def module_files(root, version):
    """Files of MODULES and of what they need, in the order in which they are to be loaded."""
    order = []
    for name in MODULES:
        shown = subprocess.run(["modprobe", "-d", root, "-S", version, "--show-depends", name], capture_output=True, text=True,
                               check=True).stdout
        for words in (line.split() for line in shown.splitlines()):
            if words[0] == "insmod" and words[1] not in order:
                order.append(words[1])
    return order


def seen(folders):
    """Of folders of this machine those that the guest's own would hide, as real paths."""
    real = sorted({os.path.realpath(folder) for folder in folders})
    return [folder for folder in real if folder.startswith(tuple(own + "/" for own in OWN))]


def make_initrd(path, folders, **values):
    root, version = kernel()
    top = tempfile.mkdtemp()
    try:
        for folder in ("bin", "proc", "sys", "dev", "modules"):
            os.makedirs(os.path.join(top, folder))
        shutil.copy(shutil.which("busybox"), os.path.join(top, "bin/busybox"))
        for name in "sh mount mkdir insmod cat cp ln chroot".split():
            os.symlink("busybox", os.path.join(top, "bin", name))
        files = module_files(root, version)
        for file in files:
            shutil.copy(file, os.path.join(top, "modules"))
        for name, text in (("order", "\n".join("/modules/" + os.path.basename(f) for f in files)), ("init", INIT),
                           ("seen", "".join(folder + "\n" for folder in seen(folders))), ("control", CONTROL % values)):
            with open(os.path.join(top, name), "w", encoding="ascii") as f:
                f.write(text)
        os.chmod(os.path.join(top, "init"), 0o755)
        names = subprocess.run(["find", "."], cwd=top, capture_output=True, check=True).stdout
        with open(path, "wb") as out:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=top, input=names, stdout=out, check=True)
    finally:
        shutil.rmtree(top)


def make_tap(netns, addr, addr6):
    """A network namespace with the tap device tap0 in it, which has these addresses, for a guest's card."""
    for line in (f"netns add {netns}", f"-n {netns} link set lo up", f"-n {netns} tuntap add tap0 mode tap",
                 f"-n {netns} link set tap0 mtu 4200 txqueuelen 50000", f"-n {netns} addr add {addr} dev tap0",
                 f"-n {netns} addr add {addr6} dev tap0 nodad", f"-n {netns} link set tap0 up"):
        subprocess.run(["ip", *line.split()], check=True)


def drop_tap(netns):
    subprocess.run(["ip", "netns", "del", netns], check=False)


class Guest:
    """A running guest, its eth0 joined to the tap device `tap` of the namespace `netns`. It sees `folders`, named by their real paths,
    wherever they lie."""

    def __init__(self, netns, tap, addr, addr6, folders, mtu=4200, cpus=2, memory=1024):
        root, version = kernel()
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="anyverbs-guest-"))
        control = os.path.join(self.folder, "control")
        initrd = os.path.join(self.folder, "initrd")
        make_initrd(initrd, (root, self.folder, *folders), addr=addr, addr6=addr6, mtu=mtu)
        self.console = os.path.join(self.folder, "console")
        command = ["ip", "netns", "exec", netns, "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi",
                   "-cpu", "max", "-smp", str(cpus), "-m", str(memory), "-display", "none", "-no-reboot", "-nodefaults",
                   "-kernel", os.path.join(root, "boot", "vmlinuz-" + version), "-initrd", initrd,
                   "-append", f"console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 no_timer_check {CLOCK}",
                   "-serial", "file:" + self.console, "-serial", f"unix:{control},server=on,wait=off",
                   "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
                   "-netdev", f"tap,id=n,ifname={tap},script=no,downscript=no",
                   "-device", "virtio-net-pci,netdev=n,mac=52:54:00:a7:b5:02"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.line = socket.socket(socket.AF_UNIX)
        for _ in range(100):
            try:
                self.line.connect(control)
                break
            except OSError:
                time.sleep(0.1)
        self.reader = self.line.makefile("r", encoding="ascii", errors="replace")
        self.busy = False

    def answer(self, seconds):
        """The next line that the guest says, as words."""
        self.line.settimeout(seconds)
        try:
            text = self.reader.readline()
        except OSError:
            text = ""
        if not text:
            raise TimeoutError("the guest says nothing; its console: " + self.console_end())
        return text.split(" ")

    def console_end(self):
        try:
            with open(self.console, encoding="utf-8", errors="replace") as f:
                return f.read()[-2000:]
        except OSError:
            return ""

    def wait_ready(self, seconds=90):
        while self.answer(seconds)[0].strip() != "ready":
            pass

    def start(self, command, port=0, seconds=30):
        """Starts a command; with `port`, returns when that is listened on (or the command has ended). "cm1234": port 1234 of the
        RDMA CM."""
        text = base64.b64encode(f"timeout {seconds} bash -c {shell_quote(command)}".encode()).decode()
        self.line.sendall(f"{port} {text}\n".encode())
        if port:
            self.answer(seconds + 60)

    def wait(self, seconds=90):
        """(exit status, output) of the command that was started."""
        words = self.answer(seconds)
        output = base64.b64decode(words[2]).decode(errors="replace") if len(words) > 2 else ""
        return int(words[1]), output

    def run(self, command, seconds=30):
        self.start(command, seconds=seconds)
        return self.wait(seconds + 60)

    def start_endless(self, command, port, seconds=30):
        """Starts a command that does not end by itself, and returns when `port` is listened on: whether it is."""
        return self.run(f"{command} >/tmp/endless 2>&1 & echo $! >/tmp/endless.pid; "
                        f"while kill -0 $!; do ! listens {port} || exit 0; sleep 0.02; done; exit 1", seconds)[0] == 0

    def end_endless(self):
        """Ends it: (0, or another number if it had ended by itself; what it said)."""
        return self.run("kill $(cat /tmp/endless.pid); status=$?; tail -c 20000 /tmp/endless; exit $status")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.line.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def boot(*args, tries=3, **more):
    """A guest that answers. Its kernel looks at its clocks while it starts, and where it got no processor meanwhile it panics."""
    while True:
        guest = Guest(*args, **more)
        try:
            guest.wait_ready()
            return guest
        except TimeoutError:
            guest.close()
            tries -= 1
            if tries == 0:
                raise


def shell_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"
