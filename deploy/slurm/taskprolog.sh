#!/bin/sh
# TaskProlog of slurm.conf, or a line of the site's own: /etc/faultline/slurm/taskprolog.sh || :
trap 'exit 0' EXIT HUP INT TERM PIPE
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
[ ! -L "$0" ] || { here=$(PATH=/usr/bin:/bin readlink -f "$0" 2>/dev/null) && here=${here%/*}; }
fl_event=taskprolog fl_done=
[ ! -r "$here/faultline-memory.sh" ] || . "$here/faultline-memory.sh"
[ -n "$fl_done" ] || /bin/sh "$here/faultline-hook.sh" taskprolog </dev/null >/dev/null 2>&1
exit 0
