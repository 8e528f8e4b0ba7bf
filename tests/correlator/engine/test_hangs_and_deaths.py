"""Runs that hang, that lose a machine before Slurm does, that are not launched; and what only looks like that."""

from __future__ import annotations

import pytest

from tests.correlator.field import (
    ANY,
    APP,
    BOOT,
    ETH0,
    IB0,
    KEY_ERROR,
    KILLED,
    RETRY,
    SET_DOWN,
    TIMELIMIT,
    UNKNOWN,
    WATCHDOG,
    InOneStore,
    Situation,
    down,
    ended,
    heard,
    wrong,
)

PANIC = ("infra.node", "node.panic", "gpu01")
TIMEOUT = ("app.timeout", None, None)
CANCEL = ("user.cancel", None, None)
LIMIT = (ended("TIMEOUT", start="-2h", time_limit_s=7200),)
BY_ROOT = {"cancelled_by": "0", "uid": "1000", "user": "alice"}
GSP = "-5390s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 119, pid=4242, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
NAS = tuple(f"-539{i}s gpu0{i} kernel: nfs: server nas1 not responding, still trying" for i in (1, 2))
NAS_BACK = tuple(f"-490{i}s gpu0{i} kernel: nfs: server nas1 OK" for i in (1, 2))
SPOKE = tuple(f"-400s gpu0{i} kernel: EDAC MC: Ver: 3.0.0" for i in range(1, 7))
LAUNCHED = tuple(
    f"-3599s gpu0{i} slurmd: launch task StepId={{0}}.0 request from UID:1000 GID:1000 HOST:10.0.0.1 PORT:4242"
    for i in (1, 2)
)
GIVEN_UP = "255s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN"
BACK = ("300s ctl slurmctld: Node gpu01 now responding", "300s ctl slurmctld: node gpu01 returned to service")


def steps(first: int, last: int) -> tuple[str, ...]:
    """A report a minute from minute ``first`` to ``last``."""
    return tuple(f"{m}min {{0}} stdout: iter {m + 999} | loss 2.1 | iter_time 2.00s" for m in range(first, last))


def panic(at: str, host: str = "gpu01") -> str:
    return f"{at} {host} kernel: Kernel panic - not syncing: Fatal exception"


SITUATIONS = [
    # hangs
    heard(
        "a rail is lost and the run stands still until its limit",
        [*steps(-120, -90), *down("-90min", "gpu01", "ib0"), TIMELIMIT],
        LIMIT,
        (IB0,),
    ),
    heard(
        "a rail flaps for 3 s as the run comes to stand still",
        [*steps(-120, -90), *down("-90min", "gpu01", "ib0", "-5397s"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
        at_most=0.7,
    ),
    heard(
        "a rail is lost an hour after the last step",
        [*steps(-120, -90), *down("-30min", "gpu01", "ib0"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
        at_most=0.7,
    ),
    heard(
        "the rail of a neighbour is lost at the last step",
        [*steps(-120, -90), *down("-90min", "gpu03", "ib0"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "the management port is lost as the output ceases",
        [*steps(-120, -20), *down("-20min", "gpu01", "eth0", "-15min"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "a GPU no longer answers at the last step",
        [*steps(-120, -90), GSP, TIMELIMIT],
        LIMIT,
        (("infra.gpu", "gpu.xid", "gpu01"),),
    ),
    heard("a GPU complains and the run goes on to its limit", [*steps(-120, -1), GSP, TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("nothing but the limit", [*steps(-120, -90), TIMELIMIT], LIMIT, (TIMEOUT,), at_most=0.7),
    heard(
        "a file server is gone from the last step on",
        [*steps(-120, -90), *NAS, TIMELIMIT],
        LIMIT,
        (("infra.storage", "storage.outage", ANY),),
    ),
    heard(
        "a file server was away for some minutes long before the last step",
        [*steps(-120, -70), *NAS, *NAS_BACK, TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "its user cancels what hangs in a file server",
        [*steps(-120, -90), *NAS],
        (ended("CANCELLED", start="-2h", cancelled_by="1000", uid="1000"),),
        (CANCEL,),
    ),
    # machines that die under a run
    heard(
        "peers' retries run out on a machine that panicked",
        [panic("-45s"), f"-2s {{0}} stderr: {RETRY}", GIVEN_UP],
        (ended(),),
        (PANIC,),
    ),
    heard(
        "a watchdog runs out on a machine that panicked",
        [panic("-605s"), f"-1s {{0}} stderr: {WATCHDOG}"],
        (ended(),),
        (PANIC,),
    ),
    heard(
        "an own error follows from lost peers",
        [panic("-45s"), f"-4s {{0}} stderr: {RETRY}", "-1s {0} stderr: RuntimeError: training step failed", GIVEN_UP],
        (ended(),),
        (PANIC,),
    ),
    heard(
        "a machine panics 8 s before a run of two fails without a word",
        [panic("-8s", "gpu02"), GIVEN_UP.replace("gpu01", "gpu02")],
        (ended(),),
        (("infra.node", "node.panic", "gpu02"),),
    ),
    heard("a machine panics 3 s after the run has failed", [panic("3s"), GIVEN_UP], (ended(),), (APP,)),
    heard("an own error, and a panic before it", [panic("-10s"), KEY_ERROR], (ended(),), (APP,)),
    heard(
        "a machine of another run panics",
        [panic("-45s", "gpu05"), f"-2s {{0}} stderr: {RETRY}"],
        (ended(),),
        (UNKNOWN,),
    ),
    heard(
        "peers are lost minutes before a kernel starts anew",
        [*SPOKE, f"-2s {{0}} stderr: {RETRY}", f"180s gpu01 kernel: {BOOT}"],
        (ended(),),
        (("infra.node", "node.reboot", "gpu01"),),
        at_most=0.8,
    ),
    heard(
        "a machine wrote on after its peers were lost, and booted later",
        [*SPOKE, f"-2s {{0}} stderr: {RETRY}", "120s gpu01 kernel: EDAC MC: alive", f"400s gpu01 kernel: {BOOT}"],
        (ended(),),
        (UNKNOWN,),
    ),
    heard(
        "somebody asks for a reboot after a run has failed",
        [
            *SPOKE,
            f"-2s {{0}} stderr: {RETRY}",
            "60s ctl slurmctld: _slurm_rpc_reboot_nodes: reboot request queued for nodes gpu01",
            f"300s gpu01 kernel: {BOOT}",
        ],
        (ended(),),
        (UNKNOWN,),
    ),
    # launches
    heard(
        "a run is given a node without its link", down("-60s", "gpu01", "eth0", "200s"), (ended(start="-20s"),), (ETH0,)
    ),
    heard(
        "a run with an error of its own is given a node without its link",
        [*down("-60s", "gpu01", "eth0", "200s"), KEY_ERROR],
        (ended(start="-20s"),),
        (APP,),
    ),
    heard(
        "the link was back before the run began", down("-60s", "gpu01", "eth0", "-30s"), (ended(start="-20s"),), (APP,)
    ),
    heard(
        "root cancels a run of 3 s, and no slurmd was heard",
        [],
        (ended("CANCELLED", start="-3s", **BY_ROOT),),
        ((ANY, None, None),),
        at_most=0.6,
    ),
    heard(
        "root cancels a run of an hour",
        ["-0.5s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 0", *LAUNCHED],
        (ended("CANCELLED", **BY_ROOT),),
        (CANCEL,),
    ),
    heard(
        "its user cancels a run of 3 s",
        [],
        (ended("CANCELLED", start="-3s", cancelled_by="1000", uid="1000"),),
        (CANCEL,),
    ),
    heard(
        "a run of 3 s is put back, and no slurmd was heard",
        ["-0.5s ctl slurmctld: Requeuing JobId={0}"],
        (ended("REQUEUED", start="-3s"),),
        ((ANY, None, None),),
        at_most=0.6,
    ),
    # silence
    heard(
        "a node is silent, and back without having booted",
        [KILLED, SET_DOWN, *BACK, "700s gpu01 kernel: EDAC MC: y"],
        (ended("NODE_FAIL"),),
        (("infra.node|infra.network", ANY, ANY),),
        at_most=0.6,
    ),
]


ALL = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *ALL[situation.name]) == []
