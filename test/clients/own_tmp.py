"""own_tmp.py: a /tmp that only this process and its children have, in a mount namespace of theirs.

Some programs have files of a fixed name there (perftest's /tmp/xrc_domain_*), which another user may have left behind.
"""
import contextlib
import ctypes
import os
import shutil
import tempfile

TMP = "/tmp"
CLONE_NEWNS, MS_BIND, MS_PRIVATE, MNT_DETACH = 0x20000, 0x1000, 0x40000, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source, target, flags):
    if LIBC.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} {target}")


def show(fd, path):
    """Puts a file or folder, open as fd, back to the path that it has in the other /tmp."""
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "a", encoding="ascii").close()
    mount(f"/proc/self/fd/{fd}", path, MS_BIND)


def mount_own(folder, keep):
    """Whether `folder` is this process' /tmp now. "/", and /tmp where it is a mount, become private: nobody else sees what is mounted on
    them. All other mounts stay what they are, so the namespaces of `ip netns` are known to all."""
    if LIBC.unshare(CLONE_NEWNS) != 0:
        return False
    kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in keep}
    try:
        mount("none", "/", MS_PRIVATE)
        with contextlib.suppress(OSError):  # no mount of its own
            mount("none", TMP, MS_PRIVATE)
        mount(folder, TMP, MS_BIND)
    except OSError:
        return False
    for path, fd in kept.items():
        show(fd, path)
        os.close(fd)
    return True


@contextlib.contextmanager
def own_tmp(keep):
    """/tmp is another, empty folder meanwhile, but for the files and folders `keep` that lie there. Without the right to mount it stays
    the same."""
    if os.geteuid() != 0:
        yield
        return
    real = {os.path.realpath(path) for path in keep}
    folder = tempfile.mkdtemp(prefix="anyverbs-tmp-", dir=TMP)
    os.chmod(folder, 0o1777)
    mounted = mount_own(folder, [path for path in sorted(real) if path.startswith(TMP + "/") and os.path.exists(path)])
    try:
        yield
    finally:
        if mounted:
            LIBC.umount2(TMP.encode(), MNT_DETACH)
        shutil.rmtree(folder, ignore_errors=True)
