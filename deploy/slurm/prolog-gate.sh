#!/bin/sh
# Prolog of slurm.conf, or a line of the site's own, with the gate: /etc/faultline/slurm/prolog-gate.sh || exit 1
# As prolog.sh, and then the gate: exit 1 only where the site and the service allow to refuse a job (faultline-gate.sh).
trap 'exit 0' HUP INT TERM PIPE
here=$(PATH=/usr/bin:/bin readlink -f "$0" 2>/dev/null) || here=$0
case $here in */*) here=${here%/*} ;; *) here=. ;; esac
hook=$here/prolog.sh
/bin/sh "$hook" </dev/null >/dev/null 2>&1
[ -f "$here/faultline-gate.sh" ] || exit 0
. "$here/faultline-gate.sh"
