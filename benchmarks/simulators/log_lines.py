"""Synthetic log lines as a GPU cluster of 1,000 hosts writes them; the same ones for the same seed.

Some 150 templates of ordinary lines and every example of the catalogue, in the framings that the sources really use.
``MIX`` is the share of each source. Two lines in a hundred are events, and about every fourth contains a text that some
pattern searches for, as on real log hosts.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from parsers.patterns import Catalogue

HOSTS = tuple(f"gpu-{number:04d}" for number in range(900)) + tuple(
    f"{kind}{number:02d}" for kind in ("login", "mgmt", "oss", "leaf") for number in range(25)
)
#: Share of lines that are events (an example of the catalogue).
EVENTS = 0.02
#: Share of ordinary lines that are similar to an event: counter-examples of the catalogue and lines with its words.
NEAR = 0.22
#: The share of lines of each source.
MIX = {"node": 0.54, "kernel": 0.17, "slurmctld": 0.12, "slurmd": 0.08, "switch": 0.03, "fabric": 0.02, "job": 0.04}

#: Ordinary lines as "program: text" ({n} a small number, {m} a large one, {h} a host, {x} hex).
_NODE = """sshd: Accepted publickey for user{n} from 10.1.{n}.{n} port {m} ssh2: ED25519 SHA256:{x}{x}
sshd: Connection closed by 10.1.{n}.{n} port {m} [preauth]
sshd: Received disconnect from 10.1.{n}.{n} port {m}:11: disconnected by user
sshd: Disconnected from user user{n} 10.1.{n}.{n} port {m}
sshd: pam_unix(sshd:session): session opened for user user{n}(uid={m}) by (uid=0)
sshd: pam_unix(sshd:session): session closed for user user{n}
systemd: Starting Cleanup of Temporary Directories...
systemd: Finished Cleanup of Temporary Directories.
systemd: Started Session {m} of User user{n}.
systemd: session-{m}.scope: Deactivated successfully.
systemd: session-{m}.scope: Consumed {n}.{n}s CPU time.
systemd: Created slice User Slice of UID {m}.
systemd: Removed slice User Slice of UID {m}.
systemd: run-user-{m}.mount: Deactivated successfully.
systemd: Reached target Timers.
systemd: logrotate.service: Deactivated successfully.
systemd: Starting Rotate log files...
systemd-logind: New session {m} of user user{n}.
systemd-logind: Removed session {m}.
systemd-logind: Session {m} logged out. Waiting for processes to exit.
CRON: (root) CMD (test -x /usr/sbin/anacron || run-parts --report /etc/cron.hourly)
CRON: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)
CRON: (nagios) CMD (/usr/lib/nagios/plugins/check_load -w {n} -c {m})
run-parts: (/etc/cron.hourly) finished 0anacron
dhclient: DHCPREQUEST for 10.1.{n}.{n} on eno1 to 10.1.0.1 port 67
dhclient: bound to 10.1.{n}.{n} -- renewal in {m} seconds.
rsyslogd: action 'action-{n}-builtin:omfwd' resumed (module 'builtin:omfwd') [v8.2302.0]
rsyslogd: imuxsock: {n} messages from pid {m} in the last minute
nslcd: [{x}] <passwd(all)> request took {n} ms
sssd: Backend is online, {n} entries in the cache
dbus-daemon: [system] Activating via systemd: service name='org.freedesktop.hostname1'
dbus-daemon: [system] Successfully activated service 'org.freedesktop.hostname1'
telegraf: [outputs.influxdb] Wrote batch of {m} metrics in {n}.{n}ms
telegraf: [inputs.nvidia_smi] gathered {n} fields of GPU {n} in {n}ms
node_exporter: level=info msg="collector finished" name=infiniband duration_seconds=0.0{n}
dcgm-exporter: level=debug msg="GPU {n} utilization {n} memory {m} MiB temperature {n}"
nvidia-persistenced: device 0000:{n}:00.0 - registered, persistence mode enabled
munged: Purged {n} credentials from replay hash
ntpd: kernel reports TIME_ERROR: {x}: Clock Unsynchronized, polling every {n} s
chronyd: Source 10.0.0.{n} replaced by 10.0.0.{n}, stratum {n}
automount: expiring path /home/user{n}
automount: mounted indirect on /scratch/proj{n} with timeout {m}
sudo: user{n} : TTY=pts/{n} ; PWD=/home/user{n} ; USER=root ; COMMAND=/usr/bin/nvidia-smi -q -i {n}
su: (to root) user{n} on pts/{n}
auditd: Audit daemon rotating log files after {m} records
irqbalance: IRQ {m} was moved from CPU {n} to CPU {n}
smartd: Device: /dev/nvme{n}n1, SMART usage attribute: temperature changed to {n}
containerd: time="2026-06-01" level=info msg="cleaning up dead shim" id={x}{x}
dockerd: level=info msg="ignoring event" container={x}{x} module=libcontainerd topic=/tasks/delete
kubelet: I0601 operationExecutor.VerifyControllerAttachedVolume started for volume {x} pod {n}
nfsd: laundromat: {n} clients, {n} opens, {m} locks held
lldpd: neighbour {h} on eno1: {n} TLVs refreshed
snmpd: Connection from UDP: [10.1.{n}.{n}]:{m}->[10.1.0.2]:161
postfix/smtpd: connect from {h}[10.1.{n}.{n}]
postfix/qmgr: {x}: from=<root@{h}>, size={m}, nrcpt=1 (queue active)
prolog: node {h} gpus {n} checked in {n} ms, scratch has {m} GiB
healthcheck: {h}: {n} of {n} checks passed in {m} ms
puppet-agent: Applied catalog in {n}.{n} seconds
ansible-command: Invoked with _raw_params=uptime _uses_shell=False argv={n}
beegfs-client: connected storage target {n} at 10.2.{n}.{n}:8003 (protocol: TCP; latency {n} us)
wazuh-agent: rule {m} scanned {n} files in /etc, {n} ms"""
_KERNEL = """audit: type=1400 audit({m}.{n}:{m}): apparmor="STATUS" operation="profile_replace" name="/usr/bin/man" pid={m}
perf: interrupt took too long ({m} > {m}), lowering kernel.perf_event_max_sample_rate to {m}
docker0: port {n}(veth{x}) entered blocking state
docker0: port {n}(veth{x}) entered forwarding state
device veth{x} entered promiscuous mode
IPv6: ADDRCONF(NETDEV_CHANGE): veth{x}: link becomes ready
overlayfs: upperdir {x} in use as workdir of {n} mounts
usb {n}-1: new high-speed USB device number {n} using xhci_hcd
usb {n}-1: New USB device found, idVendor=046b, idProduct=ff01, bcdDevice= 1.{n}
TCP: request_sock_TCP: Possible SYN flooding on port {m}. Sending cookies.
nf_conntrack: table has {m} of {m} entries, {n} expected
loop{n}: detected capacity change from 0 to {m}
systemd-journald[{n}]: Received client request to flush runtime journal, {m} kB
process 'user{n}/bin/app' started with executable stack, pid {m}
nvidia-uvm: Loaded the UVM driver in {n} mode, major device number {m}
cgroup: fork accepted by pids controller in /slurm/uid_{m}/job_{m}
mlx5_core 0000:{n}:00.0: mlx5_rescan_drivers_locked:{n}:(pid {m}): {n} drivers
mlx5_core 0000:{n}:00.0 ens{n}: Dropless mode channel {n} configured, {m} strides
EDAC MC{n}: Giving out device to module skx_edac controller Skylake Socket#{n}
XFS (dm-{n}): Mounting V5 Filesystem {x}
Lustre: scratch-OST{x}-osc: {m} kB of grant given back, {n} pages cached"""
_SLURMCTLD = """debug2: Processing RPC: REQUEST_PARTITION_INFO from UID={m}
debug2: Processing RPC: REQUEST_NODE_INFO from UID={m}
debug2: Processing RPC: MESSAGE_EPILOG_COMPLETE from UID=0
debug:  sched: Running job scheduler for default depth, {n} queued
debug:  Spawning ping agent for {h}, {n} nodes in {m} us
debug:  Note large processing time from dump_all_job_state: usec={m} began=12:00:{n}
debug2: Testing job time limits and checkpoints, {n} due
debug:  backfill: beginning, {n} partitions, {m} pending
debug:  backfill: reached end of job queue after {m} tests, yielded {n} times
debug2: slurm_persist_conn_writeable: {n} writable in {m} usec
debug3: create_mmap_buf: loaded file `/var/spool/slurmctld/job_state` as buf_t, {m} bytes
debug:  priority/multifactor: decay factor 0.99{n} applied to {m} associations
debug2: _slurm_rpc_dump_nodes, size={m} usec={m}
debug2: _slurm_rpc_dump_jobs_user, size={m} usec={m}
debug:  power_save module disabled, SuspendTime < 0, {n} nodes
debug2: node_features: {h} reports {n} features in {n} ms
debug2: _slurm_rpc_job_ready JobId={m} usec={m}, {n} polls
debug:  email msg to user{n}: Slurm Job_id={m} Name=train{n} Began
_slurm_rpc_step_complete StepId={m}.{n} usec={m}
debug2: _slurm_rpc_job_alloc_info JobId={m} NodeList={h} usec={m}
job_str_signal(3): JobId={m} sig {n} returned: No error"""
_SLURMD = """debug:  _rpc_terminate_job: uid = 0 JobId={m}
debug:  credential for job {m} revoked
debug:  Waiting for job {m}'s prolog to complete, {n} s
debug2: container signal {n} to StepId={m}.{n}
debug:  task_p_slurmd_release_resources: affinity jobid {m}
debug2: Finish processing RPC: REQUEST_LAUNCH_TASKS, {n} tasks
debug3: in the service_connection, {n} connections
task/affinity: lllp_distribution: JobId={m} binding: cores, dist {m}
debug:  xcgroup: memory.limit_in_bytes set to {m} for job_{m}
debug:  gres_g_device_major: gpu:h100 {n} of {n} checked
debug2: _read_config: slurmd has {n} config keys, {m} bytes"""
_STEPD = """debug levels are stderr='error', logfile='debug', syslog='quiet'
task {n} (pid {m}) started
debug:  jobacct_gather: {n} tasks polled in {m} us
_oom_event_monitor: {n} events counted, none new"""
_SWITCH = """NX-OS|%AAA-6-AAA_ACCOUNTING_MESSAGE: update:10.1.{n}.{n}@pts/{n}:admin:show interface counters ({m})
NX-OS|%VSHD-5-VSHD_SYSLOG_CONFIG_I: Configured from vty by admin on 10.1.{n}.{n}@pts/{n}
NX-OS|%DAEMON-6-SYSTEM_MSG: NTP poll of 10.0.0.{n} took {n} ms
EOS|Aaa: %AAA-6-LOGIN: user admin logged in from 10.1.{n}.{n} on ssh, session {m}
EOS|ConfigAgent: %SYS-6-CONFIG_SESSION: session {m} of admin committed in {n} ms
SONiC|NOTICE syncd#SDK: [SAI.INFO] counter poll {m} of port {n} in {n} us
SONiC|INFO pmon#thermalctld: fan {n} runs at {m} rpm
Junos|mgd[{m}]: UI_CMDLINE_READ_LINE: User 'admin', command 'show chassis fan {n}'"""
_FABRIC = """osm_vendor_send: completed MAD {x} to LID {m}, {n} outstanding
osm_ucast_mgr_process: minhop tables configured on all switches in {n} ms
Entering sweep {m}, {n} changes since the last
subn_calc: heavy sweep took {m} usec, {n} switches
osm_pr_rcv: path record from LID {m} to LID {m}, SL {n}"""
_JOB = """step {m} | loss {n}.{n} | lr 1e-{n} | grad norm {n}.{n} | {m} tokens/s
[2026-06-01 12:00:{n},{n}] INFO: epoch {n} iteration {m} samples {m}
{n}: checkpoint shard {n} written in {n}.{n} s
gpu-0001:{m}:{m} [{n}] NCCL INFO Channel {n}/0 : {n}[{n}] -> {n}[{n}] via P2P/CUMEM
gpu-0001:{m}:{m} [{n}] NCCL INFO Connected all rings, {n} channels
validation: top1 {n}.{n} top5 {n}.{n} in {n} s
dataloader: worker {n} prefetched {n} batches ({m} MiB)"""

_ORDINARY = {
    "node": _NODE, "kernel": _KERNEL, "slurmctld": _SLURMCTLD, "slurmd": _SLURMD, "stepd": _STEPD, "switch": _SWITCH,
    "fabric": _FABRIC, "job": _JOB,
}  # fmt: skip
#: Which of our sources writes the lines of a pattern's source.
_SPEAKERS = {
    "kernel": "kernel", "slurmctld": "slurmctld", "slurmdbd": "slurmctld", "sackd": "slurmctld", "slurmrestd": "slurmctld",
    "slurmd": "slurmd", "slurmstepd": "stepd", "switch": "switch", "job_stdout": "job", "job_stderr": "job",
    "job_output": "job", "opensm": "fabric", "fabricmanager": "fabric",
}  # fmt: skip
_HOLE = re.compile(r"\{([nmhx])\}")


def templates(catalogue: Catalogue) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, list[str]]]:
    """Ordinary lines, similar ones and events, by source.

    A line that the catalogue takes for an event is only among the events.
    """
    ordinary = {who: texts.split("\n") for who, texts in _ORDINARY.items()}
    near: dict[str, list[str]] = {who: [] for who in ordinary}
    events: dict[str, list[str]] = {who: [] for who in ordinary}
    for entry in catalogue.entries:
        who = next((_SPEAKERS[source] for source in sorted(entry.sources) if source in _SPEAKERS), "node")
        stated = "systemd: " if who == "node" else "EOS|Ebra: " if who == "switch" else ""
        events[who] += [stated + example.text for example in entry.examples if "\n" not in example.text]
        near[who] += [
            stated + text for text in entry.counters if "\n" not in text and catalogue.match(text, None) is None
        ]
    for who, texts in ordinary.items():
        near[who] += [text for text in texts if any(literal in text.lower() for literal in catalogue.literals)]
    return ordinary, near, events


class Cluster:
    """Writes lines in the order of time."""

    def __init__(self, catalogue: Catalogue, seed: int = 1, events: float = EVENTS) -> None:
        """``events``: the share of lines made of an example of an event, 0 to 1. Not all are recognised: a line of syslog
        is no line of a daemon's own file."""
        self._rng, self._share = random.Random(seed), events
        self._ordinary, self._near, self._events = templates(catalogue)
        self._at = datetime(2026, 6, 1)
        #: The number of different texts.
        self.count = sum(len(t) for kind in (self._ordinary, self._near, self._events) for t in kind.values())
        self._frames: dict[str, Callable[[str, str], str]] = {
            "node": self._syslog, "kernel": self._kernel, "slurmctld": self._slurm, "slurmd": self._slurm,
            "stepd": self._step, "switch": self._switch, "fabric": self._fabric, "job": lambda host, text: text,
        }  # fmt: skip

    def lines(self, count: int) -> Iterator[bytes]:
        rng = self._rng
        who_speaks = rng.choices(list(MIX), list(MIX.values()), k=count)
        for who in who_speaks:
            self._at += timedelta(microseconds=rng.randrange(20_000))
            if who == "slurmd" and rng.random() < 0.3:
                who = "stepd"
            pick = rng.random()
            texts = self._events[who] if pick < self._share else self._near[who] if pick < self._share + NEAR else None
            text = rng.choice(texts or self._ordinary[who])
            host = rng.choice(HOSTS)
            yield self._frames[who](host, _HOLE.sub(self._fill, text)).encode()

    def stamped(self, host: str, stated: str, facility: int = 0) -> bytes:
        """A warning of this facility (0: the kernel's) with this text ("program: text"), at the time of the last line."""
        at = self._at
        return f"<{8 * facility + 4}>{at:%b} {at.day:2d} {at:%H:%M:%S} {host} {stated}".encode()

    def _fill(self, hole: re.Match[str]) -> str:
        kind = hole[1]
        if kind == "n":
            return str(self._rng.randrange(100))
        if kind == "m":
            return str(self._rng.randrange(1_000, 9_999_999))
        return self._rng.choice(HOSTS) if kind == "h" else f"{self._rng.randrange(2**24):06x}"

    def _syslog(self, host: str, stated: str) -> str:
        at, rng = self._at, self._rng
        program, _, text = stated.partition(": ")
        pid = rng.randrange(100, 99_999)
        tag = f"{program}:" if program == "kernel" else f"{program}[{pid}]:"
        kind = rng.random()
        if kind < 0.45:
            return f"{at:%b} {at.day:2d} {at:%H:%M:%S} {host} {tag} {text}"
        if kind < 0.57:
            return f"<30>{at:%b} {at.day:2d} {at:%H:%M:%S} {host} {tag} {text}"
        if kind < 0.80:
            return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} {tag} {text}"
        if kind < 0.985:
            return f"<30>1 {at:%Y-%m-%dT%H:%M:%S.%f}Z {host} {program} {'-' if program == 'kernel' else pid} - - {text}"
        if kind < 0.99:
            return f'<30>1 {at:%Y-%m-%dT%H:%M:%S.%f}Z {host} {program} {pid} - [origin software="rsyslogd"] {text}'
        micros = int((at - datetime(1970, 1, 1)) / timedelta(microseconds=1))
        return json.dumps({
            "__REALTIME_TIMESTAMP": str(micros), "_HOSTNAME": host, "SYSLOG_IDENTIFIER": program, "_PID": str(pid),
            "PRIORITY": "6", "SYSLOG_FACILITY": "3", "MESSAGE": text,
        })  # fmt: skip

    def _kernel(self, host: str, text: str) -> str:
        # Every host booted at its own time.
        uptime = (self._at - datetime(2026, 5, 1)).total_seconds() - zlib.crc32(host.encode()) % 86_400
        kind = self._rng.random()
        if kind < 0.75:
            return self._syslog(host, f"kernel: [{uptime:12.6f}] {text}")
        if kind < 0.9:
            return f"[{uptime:12.6f}] {text}"
        return f"6,{self._rng.randrange(99_999)},{int(uptime * 1e6)},-;{text}"

    def _slurm(self, host: str, text: str) -> str:
        return f"[{self._at:%Y-%m-%dT%H:%M:%S}.{self._at.microsecond // 1000:03d}] {text}"

    def _step(self, host: str, text: str) -> str:
        return self._slurm(host, f"[{self._rng.randrange(10**6)}.{self._rng.choice(('batch', 'extern', '0'))}] {text}")

    def _switch(self, host: str, stated: str) -> str:
        at = self._at
        system, _, text = stated.partition("|")
        stamp = f"{at:%b} {at.day:2d} {at:%H:%M:%S}"
        if system == "NX-OS":
            return f"<189>: {at:%Y} {stamp} UTC: {text}"
        return f"{stamp} {host} {text}"

    def _fabric(self, host: str, text: str) -> str:
        at = self._at
        if self._rng.random() < 0.7:
            return f"{at:%b %d %H:%M:%S} {at.microsecond:06d} [7F3A] 0x02 -> {text}"
        return f"[{at:%b %d %Y %H:%M:%S}] [INFO] [tid {self._rng.randrange(10**5)}] {text}"
