#!/usr/bin/env python3
"""A file system with one file, /data.bin, that can stop answering: whoever waits for it is in D state, as on a dead NFS.

hanging_fs.py FOLDER [--stale|--error|--quota UID]: mounts it there and serves it until killed. While /run/fs.hang exists,
nothing is answered, and everything afterwards. With --stale every call ends with ESTALE, as on an export that was made
anew; with --error each read and write with EIO; with --quota the writes of a user with EDQUOT.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
import time

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, INIT = 1, 2, 3, 4, 14, 15, 16, 18, 20, 26
INTERRUPT, BATCH_FORGET, OPENDIR, RELEASEDIR = 36, 42, 27, 29
ROOT, FILE = 1, 2
SIZE = 1 << 30
DIRECT = 1  # FOPEN_DIRECT_IO: each read and write comes here


def attributes(node):
    mode = stat.S_IFDIR | 0o777 if node == ROOT else stat.S_IFREG | 0o666
    return struct.pack("<6Q10I", node, SIZE, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(code, node, body):
    """The reply to a call: an errno, or bytes."""
    if code == INIT:
        return struct.pack("<4I2H2I36x", 7, 31, 0, 0, 16, 12, 1 << 17, 1)
    if code == LOOKUP:
        if body.rstrip(b"\0") != b"data.bin":
            return errno.ENOENT
        return struct.pack("<4Q2I", FILE, 0, 0, 0, 0, 0) + attributes(FILE)
    if code in (GETATTR, SETATTR):
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if code in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 1, DIRECT, 0)
    if code == READ:
        return bytes(struct.unpack_from("<QQI", body)[2])
    if code == WRITE:
        return struct.pack("<2I", struct.unpack_from("<QQI", body)[2], 0)
    return b"" if code in (RELEASE, RELEASEDIR, FSYNC) else errno.ENOSYS


def main():
    folder, stale = sys.argv[1], "--stale" in sys.argv
    if not os.path.exists("/dev/fuse"):
        os.mknod("/dev/fuse", 0o600 | stat.S_IFCHR, os.makedev(10, 229))
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"nas01:/scratch", folder.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    while True:
        call = os.read(fd, 1 << 18)
        _, code, unique, node = struct.unpack_from("<2I2Q", call)
        if code in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        while os.path.exists("/run/fs.hang"):
            time.sleep(0.2)
        if stale and code != INIT:
            said = errno.ESTALE
        elif "--error" in sys.argv and code in (READ, WRITE):
            said = errno.EIO
        elif "--quota" in sys.argv and code == WRITE and struct.unpack_from("<I", call, 24)[0] == int(sys.argv[-1]):
            said = errno.EDQUOT
        else:
            said = answer(code, node, call[40:])
        error, data = (-said, b"") if isinstance(said, int) else (0, said)
        os.write(fd, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


main()
