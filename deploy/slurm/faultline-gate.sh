#!/bin/sh
# faultline-gate.sh: says from the agent's local answer whether this node is fit for a job: fit, doubtful or unfit, and why.
#
# Exit 0, whatever happens, unless the answer itself says that this job may be refused: then 1, and Slurm drains the node.
# The agent writes that only where the site opted in (gate = "drain" in agent.toml), the service granted it within minutes,
# and the answer is fresh. It asks neither Slurm nor the network, and starts no process. docs/hooks.md has the story.
#
# Nobody but root (or who runs this) can have written the answer: file and folder must belong to us. The signature in its
# last line is for the same in Python (`faultline-python hook prolog --gate`), which checks it.
set +eu
exec 2>/dev/null
trap 'exit 0' HUP INT TERM PIPE
folder=${FAULTLINE_GATE:-/var/lib/faultline-agent/gate}
file=$folder/answer

doubt() { echo "doubtful: $1"; exit 0; }
number() { case $1 in '' | *[!0-9]* | ????????????*) return 1 ;; esac; }

[ -e "$file" ] || doubt "its answer cannot be read: $file: is faultline-agent running?"
[ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ] || doubt "its answer is not believed: $folder is not a folder of this user"
[ -f "$file" ] && [ ! -L "$file" ] && [ -O "$file" ] || doubt "its answer is not believed: $file is not a file of this user"

# Line by line with the shell's own command: a process would cost more than everything else here.
node= fitness= boot= made= good_until= refuse_until= age= mac= reasons= part=magic size=0 opened=
newline='
'
{
    opened=1
    while IFS= read -r line || [ -n "$line" ]; do
        size=$((size + ${#line} + 1))
        [ $size -le 8193 ] || doubt "its answer is not believed: $file is larger than 8192 bytes"
        case $part in
        magic) [ "$line" = faultline-gate/1 ] || doubt "its answer is not believed: $file is no answer of this version"; part=head ;;
        head)
            case $line in
            '') part=reasons ;;
            'node '*) node=${line#* } ;;
            'fitness '*) fitness=${line#* } ;;
            'boot '*) boot=${line#* } ;;
            'made '*) made=${line#* } ;;
            'good_until '*) good_until=${line#* } ;;
            'refuse_until '*) refuse_until=${line#* } ;;
            'age '*) age=${line#* } ;;
            esac
            ;;
        reasons)
            case $line in
            'mac '*) mac=$line ;;
            ?*) reasons="$reasons${newline}  - $line" ;;
            esac
            ;;
        esac
    done
} <"$file"
[ -n "$opened" ] || doubt "its answer cannot be read: $file"
set -f
case $fitness in fit | doubtful | unfit) ;; *) fitness= ;; esac
[ -n "$fitness" ] && [ ${#mac} = 68 ] && number "$made" && number "$good_until" && number "$refuse_until" ||
    doubt "its answer is not believed: $file: a line is missing"

IFS=' '
this= uptime=
read -r this </proc/sys/kernel/random/boot_id
read -r uptime rest </proc/uptime
uptime=${uptime%%.*}
number "$uptime" || doubt "this host's uptime cannot be read"
[ "$boot" = "$this" ] || doubt "its answer is from before the last boot; is faultline-agent running?"
past=$((uptime - made))
[ "$past" -ge -1 ] && [ "$uptime" -lt "$good_until" ] || doubt "its answer is $past s old; is faultline-agent running?"
if number "$age"; then old="answer of the service $((age + past)) s ago"; else old="without the service"; fi
printf '%s\n' "$fitness $node ($old)$reasons"
if [ "$fitness" = unfit ] && [ "$uptime" -lt "$refuse_until" ]; then
    # Slurm logs only that the prolog failed. Why, is a record in root's spool, where no user can write: as a hook's (a health
    # check refuses no job).
    if [ -n "$SLURM_JOB_ID" ]; then
        case $0 in */faultline-gate.sh) here=${0%/*} ;; faultline-gate.sh) here=. ;; esac
        export FAULTLINE_GATE_ANSWER="$fitness $node ($old)$reasons"
        fl_event=gate fl_done=
        [ ! -r "$here/faultline-memory.sh" ] || . "$here/faultline-memory.sh"
        [ -n "$fl_done" ] || [ ! -r "$here/faultline-hook.sh" ] || /bin/sh "$here/faultline-hook.sh" gate </dev/null >/dev/null 2>&1
    fi
    trap - EXIT # whatever else ends this, ends with 0
    exit 1
fi
exit 0
