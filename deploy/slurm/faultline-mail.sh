#!/bin/sh
# MailProg of slurm.conf: the site's own mail program, with the line of Faultline's verdict below the text of the mail.
#
# It passes on what Slurm gave it, arguments and text, and ends with the mail program's exit code. If there is no verdict
# within a few seconds, or anything else is wrong, the mail goes out as it is. docs/hooks.md has the settings:
# /etc/faultline/mail.conf with lines NAME=VALUE.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
program=/usr/bin/mail
faultline=/opt/faultline-agent/bin/faultline
wait=4
conf=${FAULTLINE_MAIL_CONF:-/etc/faultline/mail.conf}
if [ -r "$conf" ]; then
    # Read, not sourced: a mistake in it must not end this script.
    while IFS='=' read -r name value || [ -n "$name" ]; do
        case $name in
        program) program=$value ;;
        faultline) faultline=$value ;;
        wait) case $value in '' | *[!0-9]* | ???*) ;; *) wait=$value ;; esac ;;
        server) FAULTLINE_SERVER=$value && export FAULTLINE_SERVER ;;
        token_file) FAULTLINE_TOKEN_FILE=$value && export FAULTLINE_TOKEN_FILE ;;
        esac
    done <"$conf"
fi
FAULTLINE_MAIL_WAIT=$wait
export FAULTLINE_MAIL_WAIT
line=
if command -v timeout >/dev/null 2>&1 && [ -x "$faultline" ]; then
    # A second more than it gives itself; killed if it does not end then.
    line=$(timeout -s KILL $((wait + 1)) "$faultline" hook mail "$@" </dev/null 2>/dev/null | head -c 400)
fi
[ -n "$line" ] || exec "$program" "$@"
{ cat; printf '\n%s\n' "$line"; } | "$program" "$@"
