#!/bin/sh
# Removes the node agent. The spool stays unless --purge is given: it may hold lines that were not delivered yet.
#
#   sh uninstall.sh [--purge] [--root DIR]
set -eu

root= purge=
while [ $# -gt 0 ]; do
    case $1 in
    --purge) purge=yes; shift ;;
    --root) root=$2; shift 2 ;;
    *) echo "uninstall.sh: unknown option $1" >&2; exit 2 ;;
    esac
done
# Slurm drains a node whose Prolog is missing, and only the program knows what was there before.
if [ -e "$root/etc/faultline/slurm/.installed.json" ]; then
    echo "uninstall.sh: Slurm's hooks are installed: run $root/opt/faultline-agent/bin/faultline slurm remove first" >&2
    exit 2
fi
if [ -z "$root" ] && command -v systemctl >/dev/null; then
    systemctl disable faultline-agent || true
    if [ -d /run/systemd/system ]; then systemctl stop faultline-agent || true; fi
fi
rm -rf "$root/opt/faultline-agent"
rm -f "$root/etc/systemd/system/multi-user.target.wants/faultline-agent.service" \
    "$root/etc/systemd/system/faultline-agent.service" "$root/etc/faultline/agent.toml" "$root/etc/faultline/agent.token"
rmdir "$root/etc/faultline" 2>/dev/null || true
if [ -n "$purge" ]; then
    rm -rf "$root/var/lib/faultline-agent" "$root/var/spool/faultline"
elif [ -d "$root/var/lib/faultline-agent" ]; then
    echo "uninstall.sh: $root/var/lib/faultline-agent stays (undelivered lines); --purge removes it" >&2
fi
