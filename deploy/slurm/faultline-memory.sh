# faultline-memory.sh: hands what Slurm tells its scripts (the environment) to the agent of this node, in memory.
#
# Read with "." by the scripts beside it, which set fl_event before. Only the shell's own commands are used: no process is
# started in the job's way, and no disk is touched, so that nothing can hang (the agent makes these folders on tmpfs only). The
# agent takes a file within seconds, keeps the allow-listed part of it and removes it. fl_done=1: the record lies there, or its
# loss is counted. Otherwise (no agent has run here since the boot, or it was stopped; a spool of the site's own; an environment
# of more than 256 KiB) the caller goes on with faultline-hook.sh, which writes to the disk. docs/hooks.md has the whole story.
#
# A file ends with its last line, or it is not whole: there is no rename among the shell's own commands.
fl_done=
fl_memory=${FAULTLINE_HOOK_MEMORY:-}
if [ -z "$fl_memory" ] && [ -z "$FAULTLINE_HOOK_SPOOL" ]; then
    # A task prolog runs as the job's user, who may not write into root's folder.
    case $fl_event in taskprolog) fl_memory=/dev/shm/faultline-task-hooks ;; *) fl_memory=/run/faultline/hooks ;; esac
fi
[ -n "$fl_memory" ] && [ -d "$fl_memory" ] && [ ! -L "$fl_memory" ] || return 0

# A redirection of the whole: exec would end this shell where Slurm gave it no output.
{
    umask 077
    set -C
    unset SLURM_JWT # a token of the user
    # What is larger goes to the disk. A write beyond the limit shall fail and not end this shell.
    trap '' XFSZ
    ulimit -S -f 512

    fl_host= fl_id=
    read -r fl_host </proc/sys/kernel/hostname
    read -r fl_id </proc/sys/kernel/random/uuid
    # Where only Slurm writes, 4096 names bound the number of files, and seven of them are tried. Users must not guess a name: they
    # would put a pipe in its place.
    case $fl_event in
    taskprolog) fl_names=$fl_id ;;
    *)
        fl_names=
        fl_rest=${fl_id#????????-????-????-????-}
        for fl_part in "$fl_id" "${fl_id#???}" "${fl_id#?????????}" "$fl_rest" "${fl_rest#???}" "${fl_rest#??????}" "${fl_rest#?????????}"; do
            fl_names="$fl_names ${fl_part%"${fl_part#???}"}"
        done
        ;;
    esac

    [ -n "$fl_id" ] && fl_lost=full || fl_lost=
    for fl_name in $fl_names; do
        fl_file=$fl_memory/$fl_name.exported
        fl_made=
        [ -e "$fl_file" ] || {
            fl_made=1
            printf 'faultline-shell/1\n%s\n%s\n%s\n' "$fl_event" "$fl_host" "$SLURM_JOB_ID" && export -p && printf 'faultline-end\n' &&
                fl_done=1 fl_lost=
        } >"$fl_file"
        [ -n "$fl_done" ] && break
        if [ -n "$fl_made" ]; then
            # Too large for here, or no room: then it does not take a few bytes either.
            fl_lost=disk
            printf 'faultline-void\n' >|"$fl_file" && fl_lost=
            break
        elif [ ! -e "$fl_file" ]; then # it cannot be made, and that has another reason than its name
            fl_lost=
            break
        fi
    done
    if [ -n "$fl_lost" ]; then
        # Says in the name of an empty file what was lost, as faultline-hook.sh does, for the agent to count.
        case $fl_event in
        taskprolog) fl_words=${FAULTLINE_HOOK_WORDS:-/dev/shm} ;;
        *) fl_words=${FAULTLINE_HOOK_WORDS:-/run/faultline/hooks-failed} ;;
        esac
        [ -d "$fl_words" ] && fl_place=0 || fl_place=32
        while [ $fl_place -lt 32 ]; do
            fl_file=$fl_words/faultline-hook.$fl_lost.$fl_event.$fl_place
            if [ -e "$fl_file" ] || [ -L "$fl_file" ]; then
                [ $fl_place = 31 ] && fl_done=1 # more of a kind are "at least 32"
            else
                { fl_done=1 fl_place=32; } >"$fl_file"
            fi
            fl_place=$((fl_place + 1))
        done
    fi
    set +C
    ulimit -S -f unlimited
    trap - XFSZ
} </dev/null >/dev/null 2>&1
