"""``faultline-python hook EVENT``: puts what Slurm passes to its prolog and epilog scripts into the spool.

A hook runs between a job and its node: a slow one delays the job, a failing one drains the node. So this module imports
nothing that the interpreter has not loaded already, contacts neither Slurm nor the network, opens no path that a user
named, prints nothing (Slurm interprets what a task prolog prints) and always returns 0. The one exception is the gate
(``prolog --gate`` and ``healthcheck``), which prints the agent's local answer about this node and refuses the job only if
that answer says so (``collector.agent.gate.answer_file``).
:mod:`collector.agent.artifacts` later reads what the files refer to.

The installed ``faultline hook EVENT`` does the same by the shell's scripts (``deploy/bin``), and this where they are missing.

The file is ``faultline-hook/1``, a newline, and then NUL-separated ``NAME=VALUE`` pairs.
"""

import _signal  # type: ignore[import-not-found]  # the module `signal` would load enum for the same functions
import os
import sys
import time

EVENTS = ("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "healthcheck")
MAGIC = b"faultline-hook/1\n"
SPOOL = "/var/spool/faultline/hooks"
# A task prolog runs as the job's user, who may not write into the spool of root's hooks.
TASK_SPOOL = "/var/spool/faultline/task-hooks"

PREFIXES = (b"SLURM_", b"SLURMD_")
NAMES = frozenset((b"CUDA_VISIBLE_DEVICES", b"GPU_DEVICE_ORDINAL", b"ROCR_VISIBLE_DEVICES"))
# What the job's first task ran with, beside these: only a task prolog sees it. `collector.agent.environment` has the same.
ENVIRONMENT = (
    b"NCCL_", b"CUDA_", b"NVIDIA_", b"UCX_", b"OMPI_", b"PMIX_", b"TORCH_", b"MASTER_", b"PYXIS_", b"ENROOT_", b"APPTAINER_",
    b"SINGULARITY_", b"LOADEDMODULES=", b"_LMFILES_=", b"CONDA_DEFAULT_ENV=", b"CONDA_PREFIX=", b"VIRTUAL_ENV=", b"GIT_COMMIT=",
)  # fmt: skip
# More of them at this site: one name a line, which may end in *. It is root's.
SITE_ENVIRONMENT = "/etc/faultline/slurm/environment.conf"
MAX_SITE = 16 << 10
# What the gate printed when it refused the job: kept of a record of the event "gate", which only a refusal makes.
GATE_ANSWER = b"FAULTLINE_GATE_ANSWER"
SECRET = frozenset((b"SLURM_JWT",))  # a task prolog's environment holds a user's token to the scheduler

# A hook that cannot write into its spool leaves its reason in the name of an empty file here, for the agent to count.
# Only who runs Slurm's hooks writes into the first place; users write into the second in any case.
WORDS, TASK_WORDS = "/run/faultline/hooks-failed", "/dev/shm"
MAX_WORDS = 32  # of a kind

MAX_VALUE = 32 << 10
MAX_FILE = 256 << 10
MAX_FILES = 4096
MAX_BYTES = 64 << 20
DROPPED = "dropped"  # one byte per hook that found the spool full or slow: an append needs no lock
TIME_LIMIT_S = 1
HUNG = 3  # exit status of the child whose spool does not even take a byte


def main(argv: list[str]) -> int:
    """Writes the environment to the spool. ``argv`` holds the event's name; the result is 0, unless a gate is asked and
    refuses the job."""
    event = argv[0] if argv and argv[0] in EVENTS else "unknown"
    _record(event)
    if not (event == "healthcheck" or (event == "prolog" and "--gate" in argv[1:])):
        return 0
    lines, code = _gate()
    if code and event == "prolog" and os.environ.get("SLURM_JOB_ID"):
        # Slurm logs only that the prolog failed: this says why, in root's spool, where no user can write.
        os.environ[os.fsdecode(GATE_ANSWER)] = "\n".join(lines)
        _record("gate")
    return code


def _record(event: str) -> None:
    """Writes the environment to the spool, or counts that it could not. Never raises."""
    before: list[tuple[int, object]] = []
    child = -1
    try:
        spool = os.environ.get("FAULTLINE_HOOK_SPOOL") or (TASK_SPOOL if event == "taskprolog" else SPOOL)
        child = _fork()
        _guard(before, spool, event)
        if child > 0:
            if not _wait(child):
                _leave_word(event, "slow")
        else:
            _hand_over(event, spool)
    except BaseException:  # a drained node costs more than a lost line, and nobody is there to read the error
        pass
    finally:
        if child == 0:
            os._exit(0)
        _unguard(before)


def _gate() -> "tuple[tuple[str, ...], int]":
    """Prints the gate's answer; gives it, and 1 if the job is to be refused, 0 if anything is wrong here."""
    try:
        from collector.agent.gate.answer_file import here

        word = here()
        lines, code = word.lines, 1 if word.refuses else 0
    except BaseException:  # an answer that cannot be given refuses nobody
        lines, code = ("doubtful: the gate's answer cannot be read with this Python",), 0
    try:
        os.write(1, "\n".join([*lines, ""]).encode("ascii", "replace"))  # a buffer would fail once more at the exit
    except BaseException:
        return lines, code
    return lines, code


def _fork() -> int:
    """Forks a child for the work: no signal ends a process that hangs on a dead disk, so nothing may wait for it. -1:
    the fork failed, and the work is done here."""
    try:
        child = os.fork()
    except OSError:
        return -1
    if child == 0:  # a reader of the hook's output must not wait for the child either
        null = os.open("/dev/null", os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
    return child


def _wait(child: int) -> bool:
    """Waits until the work is done, has given up, or hangs: then False."""
    _signal.alarm(0)
    until = time.monotonic() + 2 * TIME_LIMIT_S
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() >= until:
            return False
        time.sleep(0.002)
    return ended[1] != HUNG << 8


def _guard(before: list[tuple[int, object]], spool: str, event: str) -> None:
    """Exits with 0 even if the hook is asked to stop or its disk does not answer: the loss is counted if possible."""

    def give_up(_number: int, _frame: object) -> None:
        _signal.signal(_signal.SIGALRM, _hung)
        _signal.alarm(TIME_LIMIT_S)
        try:
            _count(spool, event, "slow", os.O_NONBLOCK)
        finally:
            os._exit(0)

    try:
        for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGTERM):
            before.append((number, _signal.signal(number, _leave)))
        before.append((_signal.SIGALRM, _signal.signal(_signal.SIGALRM, give_up)))
        _signal.alarm(TIME_LIMIT_S)
    except ValueError:  # not the main thread, so not a hook process
        pass


def _unguard(before: list[tuple[int, object]]) -> None:
    if before:
        _signal.alarm(0)
    for number, handler in before:
        _signal.signal(number, handler)


def _leave(_number: int, _frame: object) -> None:
    os._exit(0)


def _hung(_number: int, _frame: object) -> None:
    os._exit(HUNG)


def _hand_over(event: str, spool: str) -> None:
    env = os.environb
    now_ns = time.time_ns()
    host = os.uname().nodename
    job = os.environ.get("SLURM_JOB_ID", "")
    if not (job.isascii() and job.isdigit() and len(job) <= 20):
        job = "0"
    safe_host = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in host.split(".")[0])[:64]
    name = f"{job}.{event}.{safe_host or 'host'}.{os.getpid()}.{now_ns}.hook"

    if not os.path.isdir(spool):  # noqa: PTH112  # pathlib alone would cost a third of the time there is
        try:
            os.umask(0o077)
            os.makedirs(spool, 0o700)  # noqa: PTH103
        except OSError:
            return _leave_word(event, "absent")
    if _is_full(spool):
        return _count(spool, event, "full")
    body = content(env, event, host, now_ns)
    temporary = f"{spool}/.{name}.tmp"
    try:
        _write(temporary, body, os.O_EXCL)
        os.rename(temporary, f"{spool}/{name}")  # noqa: PTH104
    except OSError:
        try:  # noqa: SIM105  # contextlib would be an import
            os.unlink(temporary)  # noqa: PTH108
        except OSError:  # it could not even be made
            pass
        _leave_word(event, "disk" if os.access(spool, os.W_OK | os.X_OK) else "denied")


def _count(spool: str, event: str, reason: str, flags: int = 0) -> None:
    """One byte more in ``dropped``. Where users write, existing files are never written to."""
    if event != "taskprolog":
        try:
            return _write(f"{spool}/{DROPPED}", b".", os.O_APPEND | flags)
        except OSError:
            pass
    _leave_word(event, reason)


def _leave_word(event: str, reason: str) -> None:
    """Says on no disk why nothing was written."""
    folder = os.environ.get("FAULTLINE_HOOK_WORDS") or (TASK_WORDS if event == "taskprolog" else WORDS)
    for place in range(MAX_WORDS):
        try:
            return _write(f"{folder}/faultline-hook.{reason}.{event}.{place}", b"", os.O_EXCL | os.O_NONBLOCK)
        except FileExistsError:
            continue


def content(env: "os._Environ[bytes]", event: str, host: str, now_ns: int) -> bytes:
    """The bytes of a hook file: three pairs of our own, then the allowed variables of ``env``."""
    pairs = [
        b"FAULTLINE_EVENT=" + os.fsencode(event),
        b"FAULTLINE_HOST=" + os.fsencode(host),
        b"FAULTLINE_TIME=%d.%09d" % divmod(now_ns, 1_000_000_000),
    ]
    room = MAX_FILE - 256
    cut = 0
    # All tasks of a step have the same, but for their numbers: the first one tells it.
    more = _environment() if event == "taskprolog" and env.get(b"SLURM_PROCID", b"0") == b"0" else ()
    answer = (GATE_ANSWER,) if event == "gate" else ()
    for name, value in env.items():
        allowed = name.startswith(PREFIXES) or name in NAMES or name in answer or (name + b"=").startswith(more)
        if not allowed or name in SECRET:
            continue
        if len(value) > MAX_VALUE:
            value = value[:MAX_VALUE]
            cut += 1
        room -= len(name) + len(value) + 2
        if room < 0:
            cut += 1
            break
        pairs.append(name + b"=" + value)
    if cut:
        pairs.append(b"FAULTLINE_TRUNCATED=%d" % cut)
    return MAGIC + b"\0".join(pairs)


def _environment() -> tuple[bytes, ...]:
    """The beginnings of ``NAME=`` that are kept of a task's environment."""
    try:
        fd = os.open(SITE_ENVIRONMENT, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ENVIRONMENT
    try:
        lines = os.read(fd, MAX_SITE).split(b"\n")
    finally:
        os.close(fd)
    names = [line.strip() for line in lines if line.strip() and not line.startswith(b"#")]
    return ENVIRONMENT + tuple(name[:-1] if name.endswith(b"*") else name + b"=" for name in names)


def _is_full(spool: str) -> bool:
    max_files = _number("FAULTLINE_HOOK_MAX_FILES", MAX_FILES)
    room = _number("FAULTLINE_HOOK_MAX_BYTES", MAX_BYTES)
    files = 0
    try:
        with os.scandir(spool) as entries:
            for entry in entries:
                files += 1
                room -= entry.stat(follow_symlinks=False).st_size
                if files > max_files or room < 0:
                    return True
    except PermissionError:  # a task prolog spool lets users add files but not list them
        return False
    except FileNotFoundError:  # the agent removed a file while we counted: so there is room
        return False
    return files >= max_files


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else default


def _write(path: str, data: bytes, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
