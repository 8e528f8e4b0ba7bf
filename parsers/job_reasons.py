"""The reasons that Slurm gives for a job's state: the only list of them.

``squeue``, ``scontrol`` and ``sacct`` print them (slurm.h: ``enum job_state_reason``; ``job_state_reason_string`` in
src/common/job_state_reason.c, before 24.05 in slurm_protocol_defs.c). These are those of Slurm 22.05 to 25.05. sacct's
column is the last reason for which the job *waited*; ``scontrol show job`` tells of a job that is over how it ended.
"""

from __future__ import annotations

from enum import Enum


class Meaning(Enum):
    """What a reason says about its job."""

    WAITS = "waits"  #: It stays in the queue, and starts by itself later.
    HELD = "held"  #: It stays in the queue until somebody releases or changes it.
    LIMITED = "limited"  #: It stays in the queue because of a limit of an association, an account or a QOS.
    ENDED = "ended"  #: It is over, and ended like this.
    NONE = "none"  #: No reason is given.


_WAITS = (
    "Prolog", "Priority", "Dependency", "Resources", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "PartitionInactive",
    "BeginTime", "Licenses", "Reservation", "ReqNodeNotAvail", "FrontEndDown", "SchedDefer", "QOSUsageThreshold", "Cleaning",
    "QOSNotAllowed", "AccountNotAllowed", "JobArrayTaskLimit", "BurstBufferResources", "BurstBufferStageIn", "PowerNotAvail",
    "PowerReserved", "PartitionConfig", "AccountingPolicy", "FedJobLock", "MaxMemPerLimit", "MaxPoweredUpNodes", "MpiPortsBusy",
    "Constraints", "ReservationInvalid",
)  # fmt: skip
_HELD = (
    "JobHeldAdmin", "JobHeldUser", "JobHoldMaxRequeue", "DependencyNeverSatisfied", "BadConstraints", "InvalidAccount", "InvalidQOS",
    "ReservationDeleted",
)  # fmt: skip
_ENDED = (
    "NodeDown", "SystemFailure", "JobLaunchFailure", "NonZeroExitCode", "RaisedSignal", "TimeLimit", "InactiveLimit", "DeadLine",
    "OutOfMemory", "BurstBufferOperation",
)  # fmt: skip
#: Limits whose names follow no rule.
_OLD_LIMITS = (
    "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit", "QOSJobLimit", "QOSResourceLimit", "QOSTimeLimit",
    "QOSGrpCpuLimit", "QOSGrpCPUMinutesLimit", "QOSGrpCPURunMinutesLimit", "QOSGrpJobsLimit", "QOSGrpMemLimit", "QOSGrpNodeLimit",
    "QOSGrpSubmitJobsLimit", "QOSGrpWallLimit", "QOSMaxCpuPerJobLimit", "QOSMaxCpuMinutesPerJobLimit", "QOSMaxNodePerJobLimit",
    "QOSMaxWallDurationPerJobLimit", "QOSMaxCpuPerUserLimit", "QOSMaxJobsPerUserLimit", "QOSMaxNodePerUserLimit",
    "QOSMaxSubmitJobPerUserLimit", "QOSMinCpuNotSatisfied", "AssocGrpCpuLimit", "AssocGrpCPUMinutesLimit", "AssocGrpCPURunMinutesLimit",
    "AssocGrpJobsLimit", "AssocGrpMemLimit", "AssocGrpNodeLimit", "AssocGrpSubmitJobsLimit", "AssocGrpWallLimit", "AssocMaxJobsLimit",
    "AssocMaxCpuPerJobLimit", "AssocMaxCpuMinutesPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit",
    "AssocMaxSubmitJobLimit", "AssocMaxCpuPerNode", "QOSMaxCpuPerNode", "QOSMinNode", "AssocGrpNodeMinutes", "AssocGrpNodeRunMinutes",
    "AssocMaxNodeMinutesPerJob", "QOSGrpNodeMinutes", "QOSGrpNodeRunMinutes", "QOSMaxNodeMinutesPerJob", "AssocGrpMemMinutes",
    "AssocGrpMemRunMinutes", "AssocMaxMemPerJob", "AssocMaxMemPerNode", "AssocMaxMemMinutesPerJob", "QOSGrpMemoryMinutes",
    "QOSGrpMemoryRunMinutes", "QOSMaxMemoryPerJob", "QOSMaxMemoryPerNode", "QOSMaxMemoryPerUser", "QOSMaxMemoryMinutesPerJob",
    "QOSMinMemory", "MaxJobsPerAccount", "MaxSubmitJobsPerAccount",
)  # fmt: skip
#: What limits of one form count. ``Unknown`` is printed for a resource that the site made up.
_COUNTED = ("Energy", "GRES", "License", "BB", "Billing", "Unknown")
_PER_ACCOUNT = ("Cpu", "Node", "Memory", *_COUNTED)
#: There is no limit of licences on one node, and Slurm prints one limit of a QOS as that of an association.
_LIMITS = (
    *_OLD_LIMITS,
    *(f"{whose}Grp{what}{period}" for whose in ("Assoc", "QOS") for what in _COUNTED for period in ("", "Minutes", "RunMinutes")),
    *(f"{whose}Max{what}{scope}" for whose in ("Assoc", "QOS") for what in _COUNTED for scope in ("PerJob", "PerNode", "MinutesPerJob")
      if f"{what}{scope}" != "LicensePerNode" and f"{whose}{what}{scope}" != "QOSBBMinutesPerJob"),
    *(f"QOSMax{what}PerUser" for what in _COUNTED),
    *(f"QOSMin{what}" for what in _COUNTED),
    *(f"Max{what}PerAccount" for what in _PER_ACCOUNT),
    *(f"Max{what}RunMinsPer{whose}" for what in _PER_ACCOUNT for whose in ("Account", "User")),
)  # fmt: skip

#: Every reason by the name that Slurm prints. Two reasons share ``PartitionDown``, and two ``AssocMaxBBMinutesPerJob``.
JOB_REASONS = {
    "None": Meaning.NONE,
    **{
        name: meaning
        for meaning, names in (
            (Meaning.WAITS, _WAITS), (Meaning.HELD, _HELD), (Meaning.ENDED, _ENDED), (Meaning.LIMITED, _LIMITS),
        )
        for name in names
    },
}  # fmt: skip

_BY_LOWER_CASE = {name.lower(): name for name in JOB_REASONS}


def reason_named(text: object) -> str | None:
    """The reason that ``text`` names, as Slurm spells it; None for free text (``launch_failed_requeued_held``)."""
    return _BY_LOWER_CASE.get(str(text or "").strip().lower())


def meaning_of(text: object) -> Meaning:
    """What the reason that ``text`` names says about its job; ``Meaning.NONE`` for free text."""
    return JOB_REASONS[reason_named(text) or "None"]
