#!/bin/sh
# faultline-hook.sh EVENT: writes what Slurm tells its scripts (the environment) into Faultline's spool.
#
# For prolog, epilog, prologslurmctld, epilogslurmctld, taskprolog, healthcheck, jobcomp and gate (a refused job); the scripts beside
# this one call it. It asks Slurm and the network nothing, opens no path that a user named, prints nothing, gives up
# after a second and always exits 0: whatever goes wrong here must never hold a job or drain a node.
# Needs only a POSIX shell with tr, awk, date and mv (dash and busybox will do). docs/hooks.md has the whole story.

# When read with "." by another script this must not start that script once more: $0 is then its name.
case "${0##*/}" in
faultline-hook.sh) ;;
*) return 0 2>/dev/null || exit 0 ;;
esac
set +eu
trap 'exit 0' HUP INT TERM PIPE
# Slurm calls its scripts without PATH.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

case $1 in
--inner | --gave-up | --word) ;;
*)
    if command -v timeout >/dev/null 2>&1; then
        # Not waited for itself: no signal ends what hangs on a dead disk. cat ends when the work does, or is ended.
        {
            {
                timeout 1 /bin/sh "$0" --inner "$1"
                # What gave up is counted in the spool, or elsewhere if that does not even take a byte in a second.
                [ $? = 124 ] && timeout 1 /bin/sh "$0" --gave-up "$1"
            } 3>&1 </dev/null >/dev/null 2>&1 &
        } | timeout 2 cat >/dev/null 2>&1
        [ $? = 124 ] && timeout 1 /bin/sh "$0" --word slow "$1" </dev/null >/dev/null 2>&1
    else
        /bin/sh "$0" --inner "$1" </dev/null >/dev/null 2>&1
    fi
    exit 0
    ;;
esac
# Not every timeout says by itself that the time is over.
trap 'exit 124' TERM

event=$2
[ "$1" = --word ] && event=$3
case $event in
prolog | epilog | prologslurmctld | epilogslurmctld | healthcheck | jobcomp | gate) default=/var/spool/faultline/hooks ;;
# A task prolog runs as the job's user, who may not write into the spool of root's hooks.
taskprolog) default=/var/spool/faultline/task-hooks ;;
*) event=unknown default=/var/spool/faultline/hooks ;;
esac
spool=${FAULTLINE_HOOK_SPOOL:-$default}
umask 077
# A hook that cannot write into its spool leaves its reason in the name of an empty file elsewhere, on no disk: the agent
# counts it. At most 32 of a kind lie there. Only who runs Slurm's hooks writes into the first place; a task prolog takes one
# where its user may write in any case. Nothing that lies there is opened.
case $event in
taskprolog) words=${FAULTLINE_HOOK_WORDS:-/dev/shm} ;;
*) words=${FAULTLINE_HOOK_WORDS:-/run/faultline/hooks-failed} ;;
esac
word() { # word REASON
    [ -d "$words" ] || return
    set -C
    place=0
    while [ $place -lt 32 ]; do
        file=$words/faultline-hook.$1.$event.$place
        if [ ! -e "$file" ] && [ ! -L "$file" ] && true >"$file"; then return; fi
        place=$((place + 1))
    done
}
if [ "$1" = --word ]; then
    word "$2"
    exit 0
fi
# Where users write, nothing that lies there is written into: a "dropped" may be a link to a file of this user.
lost() {
    if [ $event = taskprolog ]; then word "$1"; else { printf . >>"$spool/dropped"; } || word "$1"; fi
}
if [ "$1" = --gave-up ]; then
    if [ -f "$spool/dropped" ] || [ ! -e "$spool/dropped" ]; then lost slow; else word slow; fi
    exit 0
fi
if [ ! -d "$spool" ] && ! mkdir -p "$spool"; then
    word absent
    exit 0
fi

number() { # number VALUE DEFAULT: the value if it is a plain number
    case $1 in '' | *[!0-9]* | ????????????????*) echo "$2" ;; *) echo "$1" ;; esac
}
max_files=$(number "$FAULTLINE_HOOK_MAX_FILES" 4096)
max_kib=$(($(number "$FAULTLINE_HOOK_MAX_BYTES" 67108864) / 1024))

# A spool that nobody empties must not fill the disk. One byte more in "dropped" for each hook that is let go.
full=$(du -ak "$spool" 2>/dev/null |
    awk -v files="$max_files" -v kib="$max_kib" '{ n++; size = $1 } END { print (n > files || size > kib) ? 1 : 0 }')
if [ "$full" = 1 ]; then
    lost full
    exit 0
fi

host=
read -r host </proc/sys/kernel/hostname || host=$(uname -n)
now=$(date '+%s %N')
seconds=${now% *} nanos=${now#* }
case $nanos in [0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]) ;; *) nanos=000000000 ;; esac # busybox may lack %N
job=$SLURM_JOB_ID
case $job in '' | *[!0-9]* | ?????????????????????*) job=0 ;; esac
safe_host=${host%%.*}
case $safe_host in '' | *[!A-Za-z0-9_-]*) safe_host=$(printf %s "${safe_host:-host}" | tr -c 'A-Za-z0-9_-' -) ;; esac
name=$job.$event.$safe_host.$$.$seconds$nanos.hook
temporary=$spool/.$name.tmp
trap 'rm -f "$temporary"; exit 0' HUP INT PIPE
trap 'rm -f "$temporary"; exit 124' TERM

# The temporary file is made anew (noclobber): what somebody put in its place is not followed.
set -C

# What the job's first task ran with: only a task prolog sees it. A site's own names, which may end in *, are beside this script.
task=
site=${0%/*}/environment.conf
if [ $event = taskprolog ] && [ "${SLURM_PROCID:-0}" = 0 ]; then
    task='NCCL_*CUDA_*NVIDIA_*UCX_*OMPI_*PMIX_*TORCH_*MASTER_*PYXIS_*ENROOT_*APPTAINER_*SINGULARITY_'
fi

# /proc has it exactly as Slurm gave it, and opening it costs no process; `env -0` where there is no /proc.
environment() { cat /proc/self/environ || env -0; }

# NUL and newline change places, so that awk sees one variable a line; they change back behind it.
# (A byte 1 inside a value becomes a newline. Nothing of Slurm's has one.)
{
    printf 'faultline-hook/1\n'
    printf 'FAULTLINE_EVENT=%s\000FAULTLINE_HOST=%s\000FAULTLINE_TIME=%s.%s' "$event" "$host" "$seconds" "$nanos"
    environment | LC_ALL=C tr '\n\000' '\001\n' | LC_ALL=C awk -v task="$task" -v site="$site" -v event="$event" '
        BEGIN {
            if (task != "") {
                n = split(task "*LOADEDMODULES=*_LMFILES_=*CONDA_DEFAULT_ENV=*CONDA_PREFIX=*VIRTUAL_ENV=*GIT_COMMIT=", kept, "*")
                while (n < 500 && (getline line <site) > 0) {
                    gsub(/^[ \t]+|[ \t\r]+$/, "", line)
                    if (line == "" || line ~ /^#/) continue
                    kept[++n] = line ~ /\*$/ ? substr(line, 1, length(line) - 1) : line "="
                }
            }
        }
        function of_task(pair, i) {
            for (i = 1; i <= n; i++) if (substr(pair, 1, length(kept[i])) == kept[i]) return 1
            return 0
        }
        /^SLURM_JWT=/ { next } # a token of the user
        !/^(SLURM_|SLURMD_|CUDA_VISIBLE_DEVICES=|GPU_DEVICE_ORDINAL=|ROCR_VISIBLE_DEVICES=)/ && !of_task($0) && !(event == "gate" && /^FAULTLINE_GATE_ANSWER=/) { next }
        full { next }
        {
            pair = $0
            if (length(pair) > 32768) { pair = substr(pair, 1, 32768); cut++ }
            size += length(pair) + 1
            if (size > 261888) { cut++; full = 1; next }
            ORS = ""
            print "\n" pair
        }
        END { ORS = ""; if (cut) print "\nFAULTLINE_TRUNCATED=" cut }' | LC_ALL=C tr '\n\001' '\000\n'
} >"$temporary" && mv -f "$temporary" "$spool/$name" && exit 0
rm -f "$temporary"
if [ -w "$spool" ] && [ -x "$spool" ]; then word disk; else word denied; fi
exit 0
