"""By a sixth party: errors that show far from their cause, administrators' slips, users' mistakes beside real faults.

It had read neither the correlator nor the parsers, nor the truths of former parties. Truths are as those of `endings_third.py`:
`category`, `hosts` to blame and `accept` of each job, and the `incidents` that should be found.
"""

import os
import signal
import time

import cluster as c
from capture import ctl
from endings import CONF, cancel, configure, ended, ending, on, truth, well
from endings_liars import forge
from endings_queue import as_user
from endings_second import LOOP, pair, program, says
from endings_third import blames, incident
from endings_third_sources import back
from entangled import firewall, running, start, stop
from faults import WRITES, hang, kernel_says, serve, unserve
from further import as_before, over, restart_slurmd, resume
from spaces import AS_SLURM, SHARED, hdir, switch_port

TWO = ("-N2", "--ntasks-per-node=1", "-c", "2")
#: Two ranks exchange BYTES a step over the fabric: argv is BYTES, steps, the time-out of one answer and, for the last six steps, of all.
EXCHANGE = """
import os, socket, subprocess, sys, time
size, steps, patience, six = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
rank, port = int(os.environ["SLURM_PROCID"]), 23000 + int(os.environ["SLURM_JOB_ID"]) % 1000
first = subprocess.run(["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]], capture_output=True, text=True).stdout.split()[0]
me = f"{os.uname().nodename} rank{rank}"
if rank == 0:
    peer = socket.create_server(("", port)).accept()[0]
else:
    for _ in range(60):
        try:
            peer = socket.create_connection((first + "-hsn", port), 3)
            break
        except OSError:
            time.sleep(0.5)
peer.settimeout(patience)
other, took = peer.getpeername()[0], []
for step in range(steps):
    begun = time.time()
    try:
        for turn in (0, 1):
            if rank == turn:
                peer.sendall(bytes(size))
            else:
                left = size
                while left:
                    got = len(peer.recv(left))
                    if not got:
                        sys.exit(f"{me}: ERROR: peer {other} closed the connection (step {step})")
                    left -= got
    except TimeoutError:
        sys.exit(f"{me}: ERROR: all-reduce timed out after {patience:.0f} s, peer {other} (step {step})")
    except OSError as e:
        sys.exit(f"{me}: ERROR: connection to {other} failed: {e} (step {step})")
    took = [*took[-5:], time.time() - begun]
    if len(took) == 6 and sum(took) > six:
        sys.exit(f"{me}: ERROR: straggler watchdog: six steps took {sum(took):.0f} s, limit {six:.0f} s (step {step})")
    if step % 10 == 0:
        print(me, "step", step, f"{took[-1]:.2f} s", flush=True)
    time.sleep(0.4)
print(me, "done", flush=True)
"""


def exchange(user, *arguments):
    return f"srun python3 {program(user, 'exchange.py', EXCHANGE)} {' '.join(map(str, arguments))}"


# ------------------------------------------------------------------------------------------------- networks that half work
@ending()
def lost_between_two_nodes_only(k):
    """Packets of the fabric from gpu02 to gpu03 are lost (really), one way and of these two only: alice's job of both dies. Bob's of gpu02
    and gpu04 and olga's of gpu03 and gpu04 are well. slurmd of gpu03 is restarted 5 s before, which harms nobody."""
    a = pair("gpu[02-03]", 120, 8, name="train")
    cause = "packets of the fabric from gpu02 to gpu03 were lost"
    blames(k, a, "FAILED", "1:0", "infra.network", "network gpu02 gpu03", cause, ["unknown"])
    b = well(k, pair("gpu[02,04]", 50, 8, name="rides", user="bob"))
    d = well(k, pair("gpu[03-04]", 50, 8, name="rides", user="olga"))
    running(k, a, b, d)
    restart_slurmd(k, "gpu03")
    time.sleep(5)
    firewall("gpu03", 'iifname "hsn0" ip saddr 10.78.0.12 drop')
    k.inject("packets_lost_one_way", source="gpu02", host="gpu03", net="hsn")
    ended(k)
    c.inside("gpu03", ["nft", "delete", "table", "inet", "fault"])
    k.inject("packets_pass", host="gpu03")


def frames(most, *hosts):
    """HOSTS' cards of the fabric and their switch ports carry frames of MOST bytes, and one by one (no offload)."""
    for host in hosts:
        c.sh(["ip", "-n", c.ns("leaf01"), "link", "set", switch_port(host, "hsn"), "mtu", str(most)])
        segments = "1" if most > 1500 else "65535"
        c.sh(["ip", "-n", c.ns(host), "link", "set", "hsn0", "mtu", str(most), "gso_max_segs", segments])


@ending()
def large_frames_lost(k):
    """The fabric has jumbo frames, and gpu03's switch port is set back to 1500 (really): alice's large messages with gpu02 are lost, while
    bob's small ones between the same nodes pass, and olga's large ones between gpu02 and gpu04."""
    every = ("gpu01", "gpu02", "gpu03", "gpu04")
    incident(k, "infra.network", ["gpu03"], "the switch port of gpu03 no longer carried large frames")
    try:
        frames(9000, *every)
        a = on("gpu[02-03]", exchange("alice", 400000, 300, 8, 600), *TWO, name="train")
        cause = "the switch port of gpu03 no longer carried large frames"
        blames(k, a, "FAILED", "1:0", "infra.network", "network gpu03", cause, ["unknown"])
        b = well(k, pair("gpu[02-03]", 55, 8, name="rides", user="bob"))
        d = well(k, on("gpu[02,04]", exchange("olga", 400000, 90, 8, 600), *TWO, name="train", user="olga"))
        running(k, a, b, d)
        time.sleep(6)
        port = switch_port("gpu03", "hsn")
        c.sh(["ip", "-n", c.ns("leaf01"), "link", "set", port, "mtu", "1500"])
        k.inject("mtu_set_back", host="gpu03", net="hsn", port=port)
        says(
            k, "leaf01", "switchd[412]", f"port {port}: profile 'default' applied by netops, mtu 9000 -> 1500", "notice"
        )
        ended(k)
    finally:
        frames(1500, *every)


@ending()
def card_comes_back_narrow(k):
    """The fabric link of gpu03 blinks for 1 s, and its card is back with one PCIe lane (synthetic line) and really slow: half a minute later the
    watchdog of alice's job ends it. Bob's on gpu02 and gpu04 is well, and olga's without fabric on gpu03."""
    incident(k, "infra.network", ["gpu03"], "the fabric card of gpu03 came back with one PCIe lane")
    a = on("gpu[02-03]", exchange("alice", 60000, 400, 60, 18), *TWO, name="train")
    cause = "the fabric card of gpu03 came back slow, with one PCIe lane"
    blames(k, a, "FAILED", "1:0", "infra.network", "network gpu03", cause, ["infra.node"])
    b = well(k, on("gpu[02,04]", exchange("bob", 60000, 120, 60, 18), *TWO, name="train", user="bob"))
    d = well(k, on("gpu03", "srun sleep 60", name="kept", user="olga"))
    running(k, a, b, d)
    time.sleep(5)
    k.flap("gpu03", "hsn", down_for=1)
    places = ((c.ns("leaf01"), switch_port("gpu03", "hsn")), (c.ns("gpu03"), "hsn0"))
    for space, device in places:
        c.sh(
            [
                "tc",
                "-n",
                space,
                "qdisc",
                "add",
                "dev",
                device,
                "root",
                "tbf",
                "rate",
                "150kbit",
                "burst",
                "3200",
                "latency",
                "3s",
            ]
        )
    k.inject("card_is_slow", host="gpu03", net="hsn")
    link = "limited by 2.5 GT/s PCIe x1 link at 0000:16:02.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
    kernel_says(k, "gpu03", f"mlx5_core 0000:17:00.0: 2.000 Gb/s available PCIe bandwidth, {link}", 6)
    ended(k)
    for space, device in places:
        c.sh(["tc", "-n", space, "qdisc", "del", "dev", device, "root"])


# ------------------------------------------------------------------------------------------------------- administrators' slips
@ending()
def reservation_shortened_by_root(k):
    """Alice's job has ten minutes in a reservation of twenty; root shortens that to one or two, and Slurm ends the job as if its own time were
    over. Bob's loop on gpu02 reaches his own limit of one minute; olga's is well."""
    ctl(
        "scontrol",
        "create",
        "reservation",
        "reservationname=course",
        "users=alice",
        "nodes=gpu03",
        "starttime=now",
        "duration=20",
    )
    a = on("gpu03", "srun sleep 400", "--reservation=course", "-t", "10", name="course")
    cause = "root shortened the reservation in which it ran; it had ten minutes"
    blames(k, a, "TIMEOUT", "0:0", "infra.scheduler", "administrator", cause, ["user.cancel", "unknown"])
    b = on("gpu02", f"srun python3 {program('bob', 'loop.py', LOOP)}", "-t", "1", name="loop", user="bob")
    blames(k, b, "TIMEOUT", "0:0", "app.timeout", "user program", "his loop never ends")
    d = well(k, on("gpu02", "srun sleep 50", name="kept", user="olga"))
    running(k, a, b, d)
    as_user(k, "reservation_shortened", None, "scontrol", "update", "reservationname=course", "duration=1")
    ended(k, limit=200)
    ctl("scontrol", "delete", "reservationname=course")


@ending()
def wrong_machine_rebooted(k):
    """Root asks Slurm to reboot gpu03 ASAP, and by mistake power-cycles gpu02 by its BMC: bob's job there is lost. Alice's on gpu03 fails by
    its own exit code before that node boots; olga's next one there waits and is well."""
    incident(k, "infra.node", ["gpu02"], "gpu02 was power-cycled by mistake")
    a = on("gpu03", "srun sleep 22; exit 6", name="exit6")
    blames(k, a, "FAILED", "6:0", "app.error", "user program", "its own exit code")
    b = on("gpu02", "srun sleep 200", name="hit", user="bob")
    cause = "root power-cycled gpu02 by mistake"
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu02", cause, ["infra.scheduler"])
    running(k, a, b)
    as_user(k, "reboot_asap", None, "scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=firmware 7.2", "gpu03")
    d = well(k, on("gpu03", "srun sleep 3", name="next", user="olga"))
    time.sleep(5)
    what = "ops1 : TTY=pts/3 ; PWD=/home/ops1 ; USER=root ; COMMAND=/usr/bin/ipmitool -H gpu02-bmc chassis power cycle"
    says(k, "ctl", "sudo", what, "notice")
    k.inject("power_off", c.power_off("gpu02"), host="gpu02", user="root")
    time.sleep(5)
    k.inject("power_on", c.power_on("gpu02"), host="gpu02")
    ended(k, a)
    asked = hdir("gpu03", "run/reboot.asked")
    c.wait(lambda: os.path.exists(asked), 60, "the reboot that was asked for")
    k.inject("power_off", c.power_off("gpu03"), host="gpu03")
    time.sleep(4)
    k.inject("power_on", c.power_on("gpu03"), host="gpu03")
    ended(k, d)
    resume("gpu02")
    ended(k)


BEATS = """
import sys, time
last = time.time()
for step in range(int(sys.argv[1])):
    time.sleep(14 if step == int(sys.argv[2]) else 0.5)
    if time.time() - last > 9:
        sys.exit(f"watchdog: no heartbeat for {time.time() - last:.0f} s (step {step}); node hang suspected, giving up")
    last = time.time()
    if step % 10 == 0:
        print("step", step, flush=True)
"""


@ending()
def watchdog_after_suspension(k):
    """Root suspends alice's job on gpu02 for 18 s; when it goes on, its own watchdog ends it: "node hang suspected". Bob's same program there
    ends itself so by a sleep of its own; olga's is well. The fabric link of gpu02 blinks before."""
    beats = program("alice", "beats.py", BEATS)
    a = on("gpu02", f"srun python3 {beats} 300 -1", name="beats")
    cause = "root suspended it for 18 s, and its watchdog took that for a hang"
    blames(k, a, "FAILED", "1:0", "infra.scheduler", "administrator", cause, ["unknown"])
    b = on("gpu02", f"srun python3 {beats} 300 44", name="beats", user="bob")
    blames(k, b, "FAILED", "1:0", "app.error", "user program", "a sleep of its own is longer than its watchdog waits")
    d = well(k, on("gpu02", f"srun python3 {beats} 90 -1", name="beats", user="olga"))
    running(k, a, b, d)
    k.flap("gpu02", "hsn", down_for=2)
    time.sleep(3)
    as_user(k, "suspend", None, "scontrol", "suspend", str(a), job=a)
    time.sleep(18)
    as_user(k, "resume", None, "scontrol", "resume", str(a), job=a)
    ended(k)


@ending()
def script_asks_a_broken_controller(k):
    """Root writes a wrong name into slurm.conf and restarts slurmctld, which does not start for half a minute: alice's script, with `set -e`,
    calls squeue in that time and ends. Bob's has a word misspelt, olga's ends well then."""
    incident(k, "infra.scheduler", [], "a wrong name in slurm.conf kept slurmctld and all commands from starting")
    script = "set -e\nsleep 22\nsqueue -h -j $SLURM_JOB_ID > ~/left.$SLURM_JOB_ID\nsleep 30"
    a = on("gpu02", script, name="stages")
    cause = "squeue failed: root's slurm.conf had a wrong name, so that no command of Slurm worked"
    blames(k, a, "FAILED", "1:0", "infra.scheduler", "slurm", cause)
    b = on("gpu03", "sleep 24\nsruun sleep 3", name="typo", user="bob")
    blames(k, b, "FAILED", "127:0", "app.error", "user submission", "a word of his script is misspelt")
    d = well(k, on("gpu02", "sleep 26", name="kept", user="olga"))
    running(k, a, b, d)
    old = configure(open(CONF).read() + "SchedulerTimeSlize=30\n")
    try:
        stop(k, "ctl", "slurmctld", signal.SIGTERM)
        c.wait(lambda: not c.pidof("ctl", "slurmctld"), 30, "end of slurmctld")
        said = c.inside("ctl", [*AS_SLURM, "slurmctld"], capture_output=True)
        k.inject("slurmctld_does_not_start", code=said.returncode, said=said.stderr[-300:])
        for line in said.stderr.strip().splitlines():
            says(k, "ctl", "slurmctld[2113]", line.removeprefix("slurmctld: "), "err")
        says(k, "ctl", "systemd[1]", "slurmctld.service: Main process exited, code=exited, status=1/FAILURE")
        time.sleep(34)
    finally:
        configure(old)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start")
    c.wait(lambda: c.inside("ctl", ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    ended(k)


@ending()
def controller_started_clean(k):
    """Root restarts slurmctld with -c, so that it forgets all jobs: alice's of two nodes and bob's are killed as unknown. Olga's failed by its own
    exit code some seconds before."""
    incident(k, "infra.scheduler", [], "slurmctld was started with -c and forgot all jobs")
    cause = "slurmctld was started with -c and forgot it"
    a = pair("gpu[02-03]", 200, 8, name="train")
    blames(k, a, "CANCELLED", "0:0", "infra.scheduler", "administrator", cause)
    b = on("gpu04", "srun sleep 200", name="hit", user="bob")
    blames(k, b, "CANCELLED", "0:0", "infra.scheduler", "administrator", cause)
    d = on("gpu02", "srun sleep 9; exit 4", name="exit4", user="olga")
    blames(k, d, "FAILED", "4:0", "app.error", "user program", "its own exit code")
    running(k, a, b)
    ended(k, d)
    time.sleep(4)
    stop(k, "ctl", "slurmctld", signal.SIGTERM)
    c.wait(lambda: not c.pidof("ctl", "slurmctld"), 30, "end of slurmctld")
    start("ctl", *AS_SLURM, "slurmctld", "-c")
    k.inject("slurmctld_started_clean", user="root")
    time.sleep(45)


# ------------------------------------------------------------------------------------------------------------ the site's own parts
def wraps(k, host, script, text):
    """HOST alone has TEXT as the site's SCRIPT."""
    path = f"/etc/slurm/site/{script}"
    over(host, text, path)
    c.inside(host, ["chmod", "755", path], check=True)
    k.inject("site_script_changed", host=host, script=script)
    return path


@ending()
def task_prologs_of_site_and_user(k):
    """The site's task prolog of gpu02 sets PYTHONHOME to a folder that is not there: programs of bob and olga there die as they start. Alice's own
    --task-prolog on gpu03 has the same mistake; bob's program is well on gpu03."""
    incident(k, "infra.node", ["gpu02"], "the site's task prolog of gpu02 set PYTHONHOME wrongly")
    path = wraps(k, "gpu02", "task_prolog.sh", "#!/bin/bash\necho export PYTHONHOME=/opt/site/python3.9\nexit 0\n")
    own = program("alice", "pre.sh", "#!/bin/bash\necho export PYTHONHOME=/home/alice/py39\n")
    os.chmod(f"{SHARED}{own}", 0o755)
    run = program("bob", "run.py", "import time\ntime.sleep(8)\nprint('fine')\n")
    time.sleep(2)
    a = on("gpu03", f"srun --task-prolog={own} python3 {run}", name="run")
    blames(k, a, "FAILED", "1:0", "app.error", "user submission", "her own task prolog sets PYTHONHOME wrongly")
    for user in ("bob", "olga"):
        job = on("gpu02", f"sleep 3\nsrun python3 {run}", name="run", user=user)
        cause = "the site's task prolog of gpu02 set PYTHONHOME wrongly"
        blames(k, job, "FAILED", "1:0", "infra.node", "node gpu02", cause, ["unknown"])
    well(k, on("gpu03", f"srun python3 {run}", name="run", user="bob"))
    well(k, on("gpu03", f"sleep 5\nsrun python3 {run}", name="run", user="olga"))
    ended(k)
    as_before("gpu02", path)


@ending()
def plugin_missing_on_one_node(k):
    """plugstack.conf of gpu03 alone requires a plugin that is not there: alice's job of gpu03 and bob's tasks there cannot be
    launched (Slurm calls the former COMPLETED). Olga's asks srun for an option that there is not, on gpu02; alice's other is well there."""
    incident(k, "infra.node", ["gpu03"], "plugstack.conf of gpu03 requires a plugin that is not there")
    over("gpu03", "required /usr/lib/slurm/site_tmpdir.so\n", "/etc/slurm/plugstack.conf")
    k.inject("plugin_missing", host="gpu03")
    cause = "gpu03 cannot launch: its plugstack.conf requires a plugin that is not there"
    a = on("gpu03", "srun sleep 5", name="first")
    truth(k, a, "COMPLETED", "0:0", cause, "node gpu03", note="it never ran; by its state, no verdict is due")
    b = pair("gpu[02-03]", 30, 8, name="both", user="bob")
    blames(k, b, "FAILED", "2:0", "infra.node", "node gpu03", cause, ["infra.scheduler"])
    d = on("gpu02", "srun --tmpdir-size=20G sleep 5", name="tmpdir", user="olga")
    blames(k, d, "FAILED", "127:0", "app.error", "user submission", "srun has no option of that name")
    e = well(k, on("gpu02", "srun sleep 8", name="kept"))
    ended(k, d, e)
    ended(k, a, b, limit=80)
    as_before("gpu03", "/etc/slurm/plugstack.conf")
    k.inject("plugin_no_longer_required", host="gpu03")
    time.sleep(2)
    for job in (a, b):
        if c.job_state(job) == "PENDING":
            cancel(k, job, None)
    ended(k)


SHARDS = """
import time
for step in range(90):
    with open(f"/tmp/shard-{step}.idx", "w") as f:
        f.write("x" * 100)
    print("shard", step, flush=True)
    time.sleep(1)
"""
GROWS = """
import os, time
f = open("/tmp/samples.bin", "wb", buffering=0)
for step in range(200):
    f.write(bytes(200 << 10))
    print("samples", step, flush=True)
    time.sleep(1)
"""


@ending()
def inodes_used_up_by_agent(k):
    """An agent of root takes all inodes of gpu03's /tmp (really), which has much room: alice's program gets "No space left on device". Bob's
    file there reaches a limit that his own script set; olga's is well."""
    incident(k, "infra.node", ["gpu03"], "an agent of root used up the inodes of gpu03's /tmp")
    a = on("gpu03", f"srun python3 {program('alice', 'shards.py', SHARDS)}", name="shards")
    cause = "an agent of root used up the inodes of gpu03's /tmp"
    blames(k, a, "FAILED", "1:0", "infra.node", "node gpu03", cause, ["infra.storage", "unknown"])
    b = on("gpu03", f"ulimit -f 5000\nsrun python3 {program('bob', 'grows.py', GROWS)}", name="grows", user="bob")
    blames(k, b, "FAILED", "1:0", "app.error", "user submission", "his script limits the size of files (ulimit -f)")
    d = well(k, on("gpu03", "srun sleep 50", name="kept", user="olga"))
    running(k, a, b, d)
    used = int(c.inside("gpu03", ["df", "--output=iused", "/tmp"], capture_output=True).stdout.split()[-1])
    c.inside("gpu03", ["mount", "-o", f"remount,nr_inodes={used + 3000}", "/tmp"], check=True)
    time.sleep(8)
    text = "import os\nos.mkdir('/tmp/.metricq')\nfor i in range(9999): open(f'/tmp/.metricq/{i}', 'w').close()"
    said = c.inside("gpu03", ["python3", "-c", text], capture_output=True).stderr.strip().splitlines()[-1]
    k.inject("inodes_used_up", host="gpu03", user="root", said=said)
    says(k, "gpu03", "metricsd[811]", f"cannot write /tmp/.metricq/{3000}: No space left on device", "err")
    ended(k)
    c.inside(
        "gpu03", ["sh", "-c", "rm -rf /tmp/.metricq /tmp/shard-* /tmp/samples.bin; mount -o remount,nr_inodes=0 /tmp"]
    )


# ------------------------------------------------------------------------------------------------------ users' own, beside others'
@ending()
def own_shell_limits_beside_memory_neighbour(k):
    """On gpu03 bob's program takes more memory than he asked for (the kernel kills it). Alice's scripts limit their own CPU time (killed,
    137) and address space (MemoryError); olga's writes more into /dev/shm than her job's memory."""
    text = "n = 0\nwhile True:\n    n += 1\n"
    a = on("gpu03", f"echo begin\nulimit -t 7\npython3 {program('alice', 'spin.py', text)}", name="spin")
    cause = "its own script limits its CPU time to 7 s (ulimit -t)"
    blames(k, a, "FAILED", "9:0", "app.error", "user submission", cause, ["app.timeout", "unknown"])
    text = "import time\ntime.sleep(9)\nkept = [bytearray(40 << 20) for _ in range(20)]\n"
    e = on("gpu03", f"ulimit -v 400000\nsrun python3 {program('alice', 'table.py', text)}", "--mem=1000", name="table")
    blames(
        k, e, "FAILED", "1:0", "app.error", "user submission", "its own script limits its address space", ["app.oom"]
    )
    b = on("gpu03", "sleep 5\nsrun python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog", user="bob")
    blames(k, b, "FAILED", "1:0", "app.oom", "user program", "his own memory")
    text = "import time\nf = open('/dev/shm/olga', 'wb')\nfor i in range(30):\n    f.write(bytes(8 << 20))\n    print(i, flush=True)\n    time.sleep(0.7)\n"
    d = on("gpu03", f"srun python3 {program('olga', 'stage.py', text)}", "--mem=100", name="stage", user="olga")
    blames(k, d, "FAILED", "1:0", "app.oom", "user program", "her files in /dev/shm count as her job's memory")
    f = well(k, on("gpu03", "srun sleep 30", name="kept", user="olga"))
    running(k, f)
    ended(k)
    c.inside("gpu03", ["rm", "-f", "/dev/shm/olga"])


@ending()
def coordinator_cancels_beside_flap(k):
    """The fabric link of gpu02 blinks for 2 s; 4 s later olga, coordinator of the account, cancels alice's job there. Bob cancels his own on
    gpu02 and writes a line into syslog that root had done it. Olga's own is well."""
    ctl("sacctmgr", "-i", "add", "coordinator", "account=ml", "names=olga")
    a = pair("gpu[02-03]", 120, 8, name="train")
    blames(k, a, "CANCELLED", "0:0", "user.cancel", "user", "olga, coordinator of her account, cancelled it")
    b = on("gpu02", "srun sleep 200", name="claims", user="bob")
    blames(k, b, "CANCELLED", "0:0", "user.cancel", "user", "he cancelled it himself; that root did is made up")
    d = well(k, on("gpu02", "srun sleep 40", name="kept", user="olga"))
    running(k, a, b, d)
    time.sleep(3)
    k.flap("gpu02", "hsn", down_for=2)
    time.sleep(4)
    cancel(k, a, "olga")
    time.sleep(6)
    cancel(k, b, "bob")
    what = f"root : TTY=pts/0 ; PWD=/root ; USER=root ; COMMAND=/usr/bin/scancel {b} (gpu02: hsn0 faulty, RMA)"
    forge(k, "gpu02", "bob", what, "authpriv.notice", "sudo")
    ended(k)
    ctl("sacctmgr", "-i", "delete", "coordinator", "account=ml", "names=olga")


@ending()
def controller_away_while_all_end(k):
    """slurmctld and slurmdbd are killed, and away for 28 s. In that time alice's job fails by its own exit code, bob's ends well, olga's takes too much
    memory, and gpu04 loses power under alice's other one, for good."""
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power")
    a = on("gpu02", "sleep 20; exit 9", name="exit9")
    blames(k, a, "FAILED", "9:0", "app.error", "user program", "its own exit code")
    b = well(k, on("gpu02", "sleep 22", name="kept", user="bob"))
    d = on("gpu03", "sleep 14\npython3 /home/jobs/memhog.py 600", "--mem=100", name="memhog", user="olga")
    blames(k, d, "OUT_OF_MEMORY", "0:125", "app.oom", "user program", "her own memory")
    e = on("gpu04", "srun sleep 200", name="hit")
    blames(k, e, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power")
    running(k, a, b, d, e)
    stop(k, "ctl", "slurmdbd")
    stop(k, "ctl", "slurmctld")
    time.sleep(4)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(22)
    start("ctl", *AS_SLURM, "slurmdbd")
    c.wait(
        lambda: c.inside("ctl", ["sacctmgr", "-n", "show", "cluster"], capture_output=True).returncode == 0,
        40,
        "slurmdbd",
    )
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("daemons_start", host="ctl")
    c.wait(lambda: c.inside("ctl", ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    ended(k)
    back(k, "gpu04")


@ending()
def job_of_a_rebooted_node_stays(k):
    """gpu04 loses power and boots again while slurmctld is away (killed): nothing of alice's job there is left, but Slurm goes on showing it as running, until
    root cancels it a minute later. Olga cancels her own on gpu02 then; bob's on gpu03 is well, and so is his next one on gpu04."""
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 6 s")
    a = on("gpu04", "srun sleep 500", name="lost")
    cause = "gpu04 lost power while slurmctld was away, so that nothing of it was left; root only cleared it away"
    blames(k, a, "CANCELLED", "0:0", "infra.node", "node gpu04", cause, ["infra.scheduler", "unknown"])
    b = well(k, on("gpu03", "srun sleep 40", name="kept", user="bob"))
    d = on("gpu02", "srun sleep 200", name="mine", user="olga")
    blames(k, d, "CANCELLED", "0:0", "user.cancel", "user", "she cancelled it herself")
    running(k, a, b, d)
    stop(k, "ctl", "slurmctld")
    time.sleep(4)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(14)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start", host="ctl")
    c.wait(lambda: c.inside("ctl", ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    time.sleep(25)
    e = well(k, on("gpu04", "srun sleep 5", name="next", user="bob"))
    ended(k, b, e)
    time.sleep(30)
    cancel(k, d, "olga")
    time.sleep(2)
    cancel(k, a, None)
    ended(k)


WARNS = """
import sys, time
for step in range(int(sys.argv[1])):
    if step in (9, 14, 20):
        print(f"NCCL WARN NET/IB : Got async event : port error, retrying (step {step})", file=sys.stderr, flush=True)
        print("RuntimeError: CUDA error: an illegal memory access was encountered -- caught, batch skipped", flush=True)
    print("step", step, flush=True)
    time.sleep(1)
"""


@ending()
def loud_minute_nobody_hurt(k):
    """Nothing is wrong for any job, in much noise: a fabric link blinks thrice, slurmd and slurmdbd are restarted, the configuration is read again,
    kernels report corrected errors, and bob forges worse. All jobs end well; alice cancels one that waits."""
    a = well(k, pair("gpu[02-03]", 65, 9, name="train"))
    b = well(k, pair("gpu[03-04]", 65, 9, name="train", user="bob"))
    d = well(k, on("gpu02", f"srun python3 {program('olga', 'warns.py', WARNS)} 45", name="warns", user="olga"))
    e = on("gpu02", "sleep 1", "-d", f"afternotok:{a}", name="rescue")
    blames(k, e, "CANCELLED", "0:0", "user.cancel", "user", "she cancelled it, as it was not needed")
    running(k, a, b, d)
    where = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1f2a3c offset:0x40 grain:32 syndrome:0x0)"
    kernel_says(k, "gpu03", f"EDAC MC0: 1 CE memory read error on {where}", 4)
    k.flap("gpu02", "hsn", down_for=2, count=3, gap=4)
    stop(k, "ctl", "slurmdbd")
    kernel_says(k, "gpu04", "nvme nvme0: I/O 512 (Read) QID 3 timeout, aborting", 4)
    kernel_says(k, "gpu04", "nvme nvme0: Abort status: 0x0", 4)
    forge(
        k,
        "gpu02",
        "bob",
        f"NVRM: Xid (PCI:0000:11:00): 79, pid={4711}, GPU has fallen off the bus.",
        "user.crit",
        "kernel",
    )
    restart_slurmd(k, "gpu03")
    kernel_says(k, "gpu02", "nfs: server nas01 not responding, still trying", 5)
    forge(
        k, "gpu04", "bob", f"error: *** JOB {b} ON gpu04 CANCELLED DUE TO NODE FAILURE ***", "daemon.err", "slurmstepd"
    )
    time.sleep(3)
    kernel_says(k, "gpu02", "nfs: server nas01 OK", 5)
    ctl("scontrol", "reconfigure")
    k.inject("reconfigure", user="root")
    start("ctl", *AS_SLURM, "slurmdbd")
    k.inject("slurmdbd_start")
    time.sleep(2)
    cancel(k, e, "alice")
    ended(k)


@ending()
def user_requeues_beside_drain(k):
    """Root drains gpu03 for a disk that will fail soon; alice, who has new input, requeues her job there herself, and its second run ends well. Bob's
    on gpu03 goes on and ends well, although the node is draining."""
    script = "[ ${SLURM_RESTART_COUNT:-0} = 0 ] || exec srun sleep 5\nsrun sleep 200"
    a = c.submit(script, "-w", "gpu03", "--requeue", name="train")
    blames(k, a, "REQUEUED,COMPLETED", "0:0,0:0", "user.cancel", "user", "she requeued it herself", ["unknown"])
    b = well(k, on("gpu03", "srun sleep 35", name="kept", user="bob"))
    running(k, a, b)
    kernel_says(k, "gpu03", "nvme nvme0: Device health: available spare below threshold", 4)
    as_user(
        k, "drain", None, "scontrol", "update", "nodename=gpu03", "state=drain", "reason=nvme0 spare low, ticket 881"
    )
    time.sleep(6)
    as_user(k, "requeue", "alice", "scontrol", "requeue", str(a), job=a)
    ended(k, b)
    time.sleep(10)
    resume("gpu03")
    k.wait(a, ["RUNNING"], 200)
    ended(k)


SAVES = """
import signal, sys, time
def saves(*_):
    print("SIGTERM: saving the state", flush=True)
    time.sleep(4)
    sys.exit("terminated; state saved, not finished")
signal.signal(signal.SIGTERM, saves)
for step in range(300):
    print("step", step, flush=True)
    time.sleep(1)
"""


@ending()
def dies_in_its_grace(k):
    """Alice's job on gpu02 is preempted with a grace time of 30 s, saves its state on SIGTERM and ends itself with exit code 1 in that time. Olga
    sends her own job on gpu03 that signal herself. The fabric link of gpu02 blinks then; bob's urgent job is well."""
    ctl("scontrol", "update", "partitionname=gpu", "gracetime=30", "preemptmode=cancel")
    saves = program("alice", "saves.py", SAVES)
    a = on("gpu02", f"srun python3 {saves}", "-c", "8", name="humble")
    blames(k, a, "FAILED", "1:0", "sched.preempt", "slurm", "it was preempted, and ended itself in its time of grace")
    d = on("gpu03", f"srun python3 {saves}", name="saves", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user", "she sent it SIGTERM herself", ["user.cancel"])
    running(k, a, d)
    b = well(k, c.submit("srun sleep 10", "-p", "urgent", "-w", "gpu02", "-n1", "-c", "8", name="urgent", user="bob"))
    k.inject("preempting_job", job=b)
    time.sleep(1)
    k.flap("gpu02", "hsn", down_for=2)
    time.sleep(4)
    c.inside("ctl", ["scancel", "--signal=TERM", str(d)], user="olga")
    k.inject("scancel_signal", job=d, user="olga", signal="TERM")
    ended(k)
    ctl("scontrol", "update", "partitionname=gpu", "gracetime=0", "preemptmode=requeue")


@ending(UnkillableStepTimeout="15")
def deadline_missed_for_a_drained_node(k):
    """The file server of gpu03 does not answer; bob cancels his job, which cannot be killed, and slurmd drains the node. Alice's job, which
    waits for gpu03 with a deadline, misses it and never starts. Olga's on gpu04 fails by its own exit code."""
    served = serve("gpu03", "/srv")
    incident(k, "infra.storage", ["gpu03"], "the file server of gpu03's /srv did not answer")
    b = on("gpu03", WRITES, "-c", "8", name="writes", user="bob")
    blames(k, b, "CANCELLED", "0:0", "user.cancel", "user", "he cancelled it, as it hung", ["infra.storage"])
    d = on("gpu04", "srun sleep 26; exit 3", name="exit3", user="olga")
    blames(k, d, "FAILED", "3:0", "app.error", "user program", "its own exit code")
    running(k, b, d)
    a = on("gpu03", "srun sleep 5", "-c", "8", "-t", "1", "--deadline=now+120", name="urgent")
    cause = "gpu03 was drained, as the storage hung, so that it could not start before its deadline"
    blames(
        k, a, "DEADLINE", "1:0", "infra.storage", "storage gpu03", cause, ["infra.node", "infra.scheduler", "unknown"]
    )
    hang(k, "gpu03")
    time.sleep(5)
    kernel_says(k, "gpu03", "nfs: server nas01 not responding, still trying", 5)
    cancel(k, b, "bob")
    k.wait_node("gpu03", "drain", 60)
    ended(k, a)
    unserve("gpu03", "/srv", served)
    k.inject("storage_answers", host="gpu03", server="nas01")
    kernel_says(k, "gpu03", "nfs: server nas01 OK", 5)
    ended(k)
    time.sleep(4)
    resume("gpu03")
