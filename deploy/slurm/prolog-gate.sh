#!/bin/sh
# Prolog of slurm.conf, or a line of the site's own, with the gate: /etc/faultline/slurm/prolog-gate.sh || exit 1
# As prolog.sh, and then the gate: exit 1 only where the site and the service allow to refuse a job (faultline-gate.sh).
trap 'exit 0' EXIT HUP INT TERM PIPE
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
[ ! -L "$0" ] || { here=$(PATH=/usr/bin:/bin readlink -f "$0" 2>/dev/null) && here=${here%/*}; }
fl_event=prolog fl_done=
[ ! -r "$here/faultline-memory.sh" ] || . "$here/faultline-memory.sh"
[ -n "$fl_done" ] || /bin/sh "$here/faultline-hook.sh" prolog </dev/null >/dev/null 2>&1
[ -f "$here/faultline-gate.sh" ] || exit 0
. "$here/faultline-gate.sh"
