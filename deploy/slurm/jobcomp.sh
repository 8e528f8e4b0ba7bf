#!/bin/sh
# JobCompType=jobcomp/script, JobCompLoc=/etc/faultline/slurm/jobcomp.sh: one record of each run that ended.
# slurmctld runs it as SlurmUser in a thread of its own, so no job waits for it. Its variables have plain names (JOBID,
# JOBSTATE, ...); they get a prefix here, and faultline-hook.sh writes them into the spool like any hook's.
trap 'exit 0' EXIT HUP INT TERM PIPE
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
[ ! -L "$0" ] || { here=$(PATH=/usr/bin:/bin readlink -f "$0" 2>/dev/null) && here=${here%/*}; }
for name in ACCOUNT ARRAYJOBID ARRAYTASKID CLUSTER DERIVED_EC END EXITCODE JOBID JOBNAME JOBSTATE LIMIT NODES PARTITION QOS \
    RESERVATION START STDERR STDOUT SUBMIT UID USERNAME WORK_DIR; do
    eval "export SLURM_JOBCOMP_$name=\"\${$name-}\"" # of the names above only; what they hold is not read as shell
done
export SLURM_JOB_ID="${JOBID-}" SLURM_CLUSTER_NAME="${CLUSTER-}"
/bin/sh "$here/faultline-hook.sh" jobcomp </dev/null >/dev/null 2>&1
exit 0
