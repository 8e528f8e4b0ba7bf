"""What switches say, by vendor."""

from oc_core import Sim


def port_line(sim: Sim, switch: str, port: str, t: float, up: bool) -> None:
    """The switch's word about a port, by vendor."""
    log, site = sim.log, sim.site
    if switch.startswith("ib") or site.vendor == "onyx":
        log.switch(
            switch,
            t,
            "mgmtd",
            "notice" if up else "warning",
            f"Interface {port} changed state to {'UP' if up else 'DOWN'}",
        )
    elif site.vendor == "sonic":
        log.switch(
            switch,
            t,
            "swss#orchagent",
            "notice",
            f":- updatePortOperStatus: Port {port} oper state set from {'down to up' if up else 'up to down'}",
        )
    elif site.vendor == "cumulus":
        log.switch(switch, t, "kernel", "info", f"mlxsw_spectrum3 0000:01:00.0 {port}: link {'up' if up else 'down'}")
    else:
        log.switch(
            switch,
            t,
            "Ebra",
            "notice",
            f"%LINEPROTO-5-UPDOWN: Line protocol on Interface {port}, changed state to {'up' if up else 'down'}",
        )


def crash(sim: Sim, switch: str, t: float, seconds: float) -> None:
    """A switch's own words around its restart."""
    log, vendor = sim.log, "onyx" if switch.startswith("ib") else sim.site.vendor
    words = {
        "sonic": [
            ("kernel", "warning", -1.5, "[9123411.120033] watchdog: watchdog0: watchdog did not stop!"),
            ("syncd#syncd", "err", -1.0, ":- threadFunction: time span WD exceeded 30000000 us"),
            ("systemd", "info", 0, "Starting SONiC switch state service..."),
            ("determine-reboot-cause", "info", 20, "Reboot cause is Kernel Panic [Time: unknown]"),
        ],
        "cumulus": [
            ("switchd", "crit", -1.0, "CRIT hal_bcm: DMA timeout, exiting"),
            ("systemd", "notice", -0.5, "switchd.service: Main process exited, code=dumped, status=6/ABRT"),
            ("kernel", "notice", 0, "Linux version 5.10.0-cl-1-amd64"),
            ("systemd", "info", 20, "Started Cumulus Linux Switch Daemon."),
        ],
        "arista": [
            (
                "ProcMgr-worker",
                "warning",
                -1.0,
                "%PROCMGR-6-PROCESS_TERMINATED: 'Strata-FixedSystem' (PID=2113, status=134) has terminated.",
            ),
            ("SandFap", "crit", -0.8, "%HARDWARE-2-FAP_FATAL: fatal error on Fap0, resetting the switch"),
            ("StageMgr", "notice", 10, "%SYS-5-SYSTEM_RESTARTED: System restarted"),
        ],
        "onyx": [
            ("kernel", "crit", -1.0, "sx_core: health check failed, cause: FW fatal, dev 1"),
            ("issmd", "err", -0.8, "SDK health: fatal event, restarting"),
            ("mgmtd", "notice", 15, "System boot: reset cause is watchdog"),
        ],
    }
    for prog, severity, lag, text in words[vendor]:
        log.switch(switch, t + (lag if lag <= -0.5 else seconds - 60 + lag), prog, severity, text)


def optic_words(sim: Sim, switch: str, port: str, late: float, host: str, rail: int) -> None:
    """A bad optic as the switch sees it."""
    rng, site = sim.rng, sim.site
    if switch.startswith("ib") or site.vendor == "onyx":
        sim.log.switch(
            switch,
            late,
            "mgmtd",
            "warning",
            f"Interface {port}: effective BER 2.1e-07 exceeded the error threshold 1e-08, symbol errors {rng.randint(2000, 90000)}",
        )
        sim.log.opensm(
            late + 5,
            f"0x02 -> perfmgr_log_error_events: ERR 543C: {rng.randint(200, 60000)} symbol errors, {rng.randint(3, 40)} link error recovery on {switch} port "
            f"{port.split('/')[1]} connected to {host} HCA-{rail + 1}",
        )
    elif site.vendor == "sonic":
        sim.log.switch(
            switch,
            late,
            "pmon#xcvrd",
            "warning",
            f"{port}: rx power {-9 - rng.random() * 4:.2f} dBm below low alarm threshold on lane {rng.randint(1, 4)}",
        )
        sim.log.switch(
            switch,
            late + 1,
            "swss#orchagent",
            "warning",
            f":- fec: Port {port} FEC uncorrectable codewords {rng.randint(200, 9000)} in last interval",
        )
    elif site.vendor == "cumulus":
        sim.log.switch(
            switch,
            late,
            "switchd",
            "warning",
            f"{port}: FEC uncorrectable blocks increased by {rng.randint(200, 9000)}; rx power low alarm on lane {rng.randint(1, 4)}",
        )
    else:
        sim.log.switch(
            switch,
            late,
            "Xcvr",
            "warning",
            f"%XCVR-4-DOM_THRESHOLD: {port} Rx power lane {rng.randint(1, 4)} {-9 - rng.random() * 4:.2f} dBm is below low alarm threshold",
        )
