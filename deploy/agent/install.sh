#!/bin/sh
# Installs the node agent, in one command, on a running node or inside a node image:
#
#   sh install.sh --server https://faultline:8514 --token-file /root/faultline.token
#   chroot /images/gpu sh /tmp/install.sh --server https://faultline:8514 --token-file /root/t --image --from /tmp/faultline-0.1.0-py3-none-any.whl
#
# --token-file F the bearer token, in a file that only root reads; - reads it from standard input. Or set FAULTLINE_TOKEN.
#                (--token T works too, and whoever runs ps on this host reads it)
# --from WHAT    what pip installs: a wheel, a folder, a URL (default: faultline from the package index)
# --gpu          also nvidia-ml-py, for NVML
# --image        do not ask the service, do not start anything (the image is not a node)
# --controller   this host runs slurmctld
# --ca FILE      certificate that signs the service's
# --root DIR     put all files below DIR (for packages)
#
# It writes /opt/faultline-agent, /etc/faultline/agent.toml and .token, the hooks' spool, and the unit; uninstall.sh removes them.
# Safe to repeat: an existing configuration stays. PYTHON names the interpreter (3.11 or newer).
set -eu
umask 077

from=faultline root= image= gpu= server= token=${FAULTLINE_TOKEN:-} more= controller=
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "install.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=$2; shift 2 ;;
    --root) root=$2; shift 2 ;;
    --server) server=$2; shift 2 ;;
    --token) echo "install.sh: a token on the command line is seen by whoever runs ps; use --token-file or FAULTLINE_TOKEN" >&2
        token=$2; shift 2 ;;
    --token-file) if [ "$2" = - ]; then token=$(cat); else token=$(cat "$2") || fail "$2 cannot be read"; fi; shift 2 ;;
    --ca) more="$more --ca $2"; shift 2 ;;
    --controller) controller=--controller; shift ;;
    --gpu) gpu=nvidia-ml-py; shift ;;
    --image) image=--image; shift ;;
    *) fail "unknown option $1; the first lines of $0 list them" ;;
    esac
done
[ -n "$server" ] || fail "--server is missing, such as --server https://faultline:8514"

python=
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -z "$python" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
    fi
done
[ -n "$python" ] || fail "no Python 3.11 or newer here; install one, or set PYTHON"

home=$root/opt/faultline-agent
# What everybody may read: the program, so that `faultline hook` runs as a job's user too, and the unit. All else is root's.
umask 022
"$python" -m venv "$home"
"$home/bin/pip" install --quiet --disable-pip-version-check --upgrade "${from}[agent]" $gpu

umask 077

config=$root/etc/faultline/agent.toml
if [ -e "$config" ]; then
    echo "install.sh: $config stays as it is" >&2
else
    FAULTLINE_TOKEN=$token "$home/bin/faultline" agent enroll --config "$config" --server "$server" $more $controller $image
    # Below --root the configuration still names the token where the node will find it.
    if [ -n "$root" ]; then sed -i "s|$root/|/|" "$config"; fi
fi

# Slurm's hooks write here (docs/hooks.md), and the agent reads it: root's on a node, SlurmUser's on a controller. The
# hooks themselves: faultline slurm install.
"$home/bin/faultline" slurm install --folders-only --yes $controller --root "${root:-/}" >&2

unit=$here/faultline-agent.service
[ -e "$unit" ] || unit=$here/../systemd/faultline-agent.service
install -D -m 0644 "$unit" "$root/etc/systemd/system/faultline-agent.service"
umask 022
if [ -z "$root" ] && command -v systemctl >/dev/null; then
    systemctl enable faultline-agent
    if [ -z "$image" ] && [ -d /run/systemd/system ]; then systemctl restart faultline-agent; fi
else
    install -d "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf ../faultline-agent.service "$root/etc/systemd/system/multi-user.target.wants/faultline-agent.service"
fi
echo "install.sh: done; 'faultline agent status' says how the agent stands, 'faultline slurm install' adds Slurm's hooks" >&2
