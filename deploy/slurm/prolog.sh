#!/bin/sh
# Prolog of slurm.conf, or a line of the site's own: /etc/faultline/slurm/prolog.sh || :
trap 'exit 0' HUP INT TERM PIPE
here=$(PATH=/usr/bin:/bin readlink -f "$0" 2>/dev/null) || here=$0
case $here in */*) here=${here%/*} ;; *) here=. ;; esac
/bin/sh "$here/faultline-hook.sh" prolog </dev/null >/dev/null 2>&1
exit 0
