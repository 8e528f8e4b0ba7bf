#!/bin/sh
# Called by `make test`: installs what the tests for browsers and for a real Slurm need, where it may.
# Never fails the run: a test that lacks something skips itself and says why.

note() { echo "prepare: $*" >&2; }

wanted=
want() { # want PROGRAM PACKAGE...: ask for the packages if the program is not there
    program=$1
    shift
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null 2>&1 || wanted="$wanted $*"
}

want chromium-headless-shell chromium-headless-shell # the browser of the tests, half as expensive as the whole one
command -v chromium-headless-shell >/dev/null 2>&1 || want chromium chromium
want slurmctld slurm-wlm slurmctld
want slurmd slurmd
want slurmdbd slurmdbd
want sinfo slurm-client
want munged munge
want rsyslogd rsyslog
[ -x /lib/systemd/systemd-journal-upload ] || wanted="$wanted systemd-journal-remote"
[ -e /usr/lib/x86_64-linux-gnu/rsyslog/omelasticsearch.so ] || wanted="$wanted rsyslog-elasticsearch"
[ -e /usr/lib/x86_64-linux-gnu/slurm-wlm/jobcomp_elasticsearch.so ] || wanted="$wanted slurm-wlm-elasticsearch-plugin"
want slurmrestd slurmrestd slurm-wlm-jwt-plugin
want faketime faketime
want prometheus-node-exporter prometheus-node-exporter
[ -e /usr/lib/x86_64-linux-gnu/rsyslog/lmnsd_ossl.so ] || wanted="$wanted rsyslog-openssl"
want mariadbd mariadb-server mariadb-client
want ip iproute2
want busybox busybox

# syslog-ng and rsyslog exclude each other as packages: its files and libraries are laid aside instead of installed.
aside=/opt/faultline-tests/syslog-ng
syslog_ng_starts() {
    LD_LIBRARY_PATH=$aside/usr/lib/syslog-ng:$aside/usr/lib/x86_64-linux-gnu:$aside/lib/x86_64-linux-gnu \
        $aside/usr/sbin/syslog-ng --version --module-path "$(echo $aside/usr/lib/syslog-ng/[0-9]*)" >/dev/null 2>&1
}
lay_syslog_ng_aside() {
    syslog_ng_starts || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1 && return
    place=$(mktemp -d) && cd "$place" || return
    parts="syslog-ng-core libivykis0 libnet1 libwrap0 libjson-c5 libpcre3"
    # shellcheck disable=SC2086  # a list of package names
    apt-get download -q $parts >/dev/null 2>&1 || { apt-get update -qq && apt-get download -q $parts; } >/dev/null 2>&1
    mkdir -p $aside
    for package in *.deb; do
        [ ! -e "$package" ] || dpkg-deb -x "$package" $aside
    done
    syslog_ng_starts || { rm -rf $aside && note "without a syslog-ng that starts: its tests are skipped"; }
    cd - >/dev/null && rm -rf "$place"
}

# The OTLP exporter for JSON has only releases that exclude the protobuf one's versions: it is laid aside, too.
lay_otlp_json_aside() {
    place=/opt/faultline-tests/otlp-json
    [ -d $place ] || [ "$(id -u)" != 0 ] || [ ! -x .venv/bin/python ] && return
    .venv/bin/python -m pip install -q --disable-pip-version-check --target $place opentelemetry-exporter-otlp-json-http==0.66b1 \
        >/dev/null 2>&1 || { rm -rf $place && note "without OTLP's JSON exporter: its test is skipped"; }
}
lay_otlp_json_aside

# axe, the judge of accessibility, as a package that brings the script along; nothing of it is part of the product.
lay_axe_aside() {
    place=/opt/faultline-tests/axe
    [ -d $place ] || [ "$(id -u)" != 0 ] || [ ! -x .venv/bin/python ] && return
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target $place axe-playwright-python==0.1.8 \
        >/dev/null 2>&1 || { rm -rf $place && note "without axe: its test is skipped"; }
}
lay_axe_aside

# Helm as a library, and the schemas of Kubernetes: what `helm template` renders, judged without a cluster.
lay_helm_aside() {
    place=/opt/faultline-tests/helm
    [ -d $place ] || [ "$(id -u)" != 0 ] || [ ! -x .venv/bin/python ] && return
    .venv/bin/python -m pip install -q --disable-pip-version-check --target $place helm-python-sdk==0.2.2 kubernetes-validate==1.37.0 \
        >/dev/null 2>&1 || { rm -rf $place && note "without Helm: the chart's tests are skipped"; }
}
lay_helm_aside

if [ -z "$wanted" ]; then
    lay_syslog_ng_aside
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    note "not root on Debian, so these stay missing and their tests are skipped:$wanted"
    exit 0
fi

log=$(mktemp) || exit 0
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# The tests start the daemons they need, in namespaces; the machine itself must run none of them.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$log" "$policy"' EXIT
fi
note "installing$wanted"
apt-get update -qq >"$log" 2>&1 || note "apt-get update failed: $(tail -n 1 "$log")"
# shellcheck disable=SC2086  # a list of package names
if ! apt-get install -y -qq --no-install-recommends $wanted >"$log" 2>&1; then
    note "all at once failed ($(grep -m 1 '^E:' "$log")); one by one"
    for package in $wanted; do
        apt-get install -y -qq --no-install-recommends "$package" >"$log" 2>&1 ||
            note "without $package: its tests are skipped ($(grep -m 1 '^E:' "$log"))"
    done
fi
lay_syslog_ng_aside
exit 0
