"""Forms that are secrets anywhere, and options of well-known commands that carry one.

The group ``s`` of a pattern is removed. Token prefixes are those that their vendors document for repository scanners.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass


def is_mixed(value: bytes) -> bool:
    """Letters and digits mixed, which words of a sentence are not."""
    return bool(re.search(rb"\d", value) and re.search(rb"[A-Za-z]", value)) and len(value) >= 6


def is_basic(value: bytes) -> bool:
    """Whether it is ``user:password`` in base64."""
    try:
        return b":" in base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _any(_found: re.Match[bytes]) -> bool:
    return True


def _mixed(found: re.Match[bytes]) -> bool:
    return is_mixed(found["s"])


@dataclass(frozen=True)
class Form:
    pattern: re.Pattern[bytes]
    accepts: Callable[[re.Match[bytes]], bool] = _any


def _form(pattern: bytes, accepts: Callable[[re.Match[bytes]], bool] = _any, flags: int = 0) -> Form:
    return Form(re.compile(pattern, flags), accepts)


_EDGE = rb"(?<![A-Za-z0-9_-])"
_BREAK = rb"(?:[ \t]{0,8}\\?\r?\n)?[ \t]{0,8}"

#: Prefixes that identify the issuer of a token.
_TOKENS = (
    rb"sk-(?:proj|ant|svcacct|admin|or|lf)-[A-Za-z0-9_-]{8,255}",
    rb"gh[pousr]_[A-Za-z0-9]{16,255}", rb"github_pat_[A-Za-z0-9_]{16,255}",
    rb"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[A-Za-z0-9_.-]{10,255}", rb"glsa_[A-Za-z0-9_]{20,255}", rb"glc_[A-Za-z0-9+/=]{20,500}",
    rb"hf_[A-Za-z0-9]{20,255}(?![A-Za-z0-9_])", rb"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,255}", rb"whsec_[A-Za-z0-9+/=]{10,255}",
    rb"xox[a-z]-[A-Za-z0-9-]{10,255}", rb"xapp-[A-Za-z0-9-]{10,255}", rb"(?:AKIA|ASIA|AGPA|AROA|ABIA|ACCA)[0-9A-Z]{12,20}(?![0-9A-Za-z])",
    rb"AIza[A-Za-z0-9_-]{30,60}", rb"ya29\.[A-Za-z0-9_-]{10,500}", rb"1//0[A-Za-z0-9_-]{20,200}", rb"GOCSPX-[A-Za-z0-9_-]{20,60}",
    rb"npm_[A-Za-z0-9]{30,60}(?![A-Za-z0-9_])", rb"pypi-[A-Za-z0-9_-]{20,500}", rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,100}", rb"nvapi-[A-Za-z0-9_-]{20,200}",
    rb"hv[sbr]\.[A-Za-z0-9_-]{16,500}", rb"dapi[0-9a-f]{32}", rb"NRAK-[A-Z0-9]{20,60}", rb"sntry[su]_[A-Za-z0-9+/=_-]{20,500}", rb"lin_api_[A-Za-z0-9]{20,100}",
    rb"ATATT[A-Za-z0-9_=-]{20,400}", rb"ntn_[A-Za-z0-9]{30,100}", rb"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{16,80}", rb"key-[0-9a-f]{32}", rb"SK[0-9a-f]{32}",
    rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{20,200}", rb"AGE-SECRET-KEY-1[A-Z0-9]{20,100}", rb"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]{10,4000}",
    rb"eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{0,4000}",
    rb"MUNGE:[A-Za-z0-9+/=]{20,4000}", rb"\$(?:apr1|1|5|6|y|gy|7|2[abxy]|argon2(?:id|i|d))\$[A-Za-z0-9./$=,+-]{8,400}", rb"\{S?SHA(?:256|512)?\}[A-Za-z0-9+/=]{20,200}",
    rb"\bsha(?:1|256):[^\s:'\"]{1,40}:[0-9a-f]{8,128}",
)  # fmt: skip

_ONE = rb"""["']?(?P<s>(?:(?<=")[^"\r\n]{1,500}|(?<=')[^'\r\n]{1,500}|[^\s"'][^\s"']{0,499}))"""


def _option(commands: bytes, option: bytes, value: bytes = _ONE) -> Form:
    """``option`` of one of the ``commands``, within the same command of the same line."""
    return _form(rb"(?<![\w.-])(?:" + commands + rb")(?=[ \t])[^\n|;]{0,300}?[ \t]" + option + value)


#: A placeholder for a value: a shell variable, or a name in a usage text (``[--token TOKEN]``).
_VARIABLE = re.compile(rb"\$\{?[A-Za-z_]\w*\}?\W{0,3}\Z")
_PLACEHOLDER = re.compile(rb"[A-Z][A-Z_]{2,30}[\])|,]{0,3}\Z|<[\w -]{1,40}>?[\])|,]{0,3}\Z")


def _given(found: re.Match[bytes]) -> bool:
    """Whether an option's value is a real value, not a placeholder."""
    return not (found["s"].startswith(b"$") or _PLACEHOLDER.match(found["s"]))


_COMMANDS = (
    _option(rb"mysql|mysqldump|mysqladmin|mysqlimport|mysqlcheck|mariadb|mariadb-dump|mariadb-admin", rb"-p(?=\S)"),
    _option(rb"sshpass", rb"-p[ \t]{0,4}"),
    _option(rb"(?:docker|podman|nerdctl|buildah|skopeo|helm|oc|apptainer|singularity)(?:[ \t]\w+)?[ \t]+login", rb"-p[ \t=]{0,4}(?!ass)"),
    _option(rb"twine|ipmi-[a-z]+|ipmipower|bmc-[a-z]+|redfishtool|onetouchcli|racadm|mongosh?|mongodump|mongorestore|cqlsh", rb"-p[ \t]{1,4}"),
    _option(rb"az[ \t]+(?:acr[ \t]+)?login", rb"-p[ \t]{1,4}"),
    _option(rb"ipmitool|sqlcmd|bcp|unzip|zip|zipcloak", rb"-[A-Za-z]{0,8}P[ \t]{0,4}"),
    _option(rb"7z[arz]?|rar|unrar", rb"-h?p(?=\S)"),
    _option(rb"keytool|jarsigner|mvn|gradle", rb"-(?:src|dest)?(?:store|key)pass[ \t]{1,4}"),
    _option(rb"htpasswd[ \t]+-[A-Za-z]{0,6}b[A-Za-z]{0,6}", rb"\S{1,200}[ \t]{1,4}"),
    _option(rb"ldap[a-z]+|kadmin(?:\.local)?", rb"-w[ \t]{0,4}"),
    _option(rb"redis-cli|keydb-cli|valkey-cli", rb"-a[ \t]{0,4}"),
    _option(rb"snmp[a-z]+", rb"-A[ \t]{0,4}"),
    _option(rb"snmp[a-z]+", rb"-X[ \t]{0,4}"),
    _option(rb"snmp[a-z]+", rb"-c[ \t]{0,4}"),
    _option(rb"openssl[ \t]+\w+", rb"-[kK][ \t]{1,4}"),
    _option(rb"oathtool", rb"(?:-b|--base32)[ \t]{1,4}"),
    _option(rb"x11vnc|vncviewer", rb"-passwd[ \t]{1,4}"),
    _option(rb"curl", rb"(?:-[A-Za-z]{0,8}[uU][ \t]{0,4}|--(?:proxy-)?user[ \t=]{1,4})[\"']?[^\s:\"']{1,200}:(?!//)", rb"""(?P<s>[^\s"']{1,500})"""),
    _option(rb"curl", rb"(?:-b[ \t]{0,4}|--cookie[ \t=]{1,4})[\"']?[^\s=\"']{1,100}=", rb"""(?P<s>[^\s"']{1,1000})"""),
    _option(rb"smb(?:client|get|map)", rb"(?:-U[ \t]{0,4}|--user[ \t=])[\"']?[^\s%\"']{1,200}%", rb"""(?P<s>[^\s"']{1,500})"""),
    _option(rb"https?|xhs?", rb"(?:-a[ \t]{0,4}|--auth[ \t=]{1,4})[\"']?[^\s:\"']{1,200}:(?!//)", rb"""(?P<s>[^\s"']{1,500})"""),
    _option(rb"skopeo|podman|buildah|oras|crane", rb"--(?:(?:src|dest|from|to)-)?creds[ \t=][\"']?[^\s:\"']{1,200}:", rb"""(?P<s>[^\s"']{1,500})"""),
    _option(rb"lftp|ncftp[a-z]*", rb"(?:-u[ \t]{0,4}|--user[ \t=])[\"']?[^\s,\"']{1,200},", rb"""(?P<s>[^\s"']{1,500})"""),
    _option(rb"kubectl|oc", rb"--from-literal[ =][\"']?[\w.-]{1,100}=", rb"""(?P<s>[^\s"']{1,2000})"""),
    _form(rb"(?<![\w.-])wandb[ \t]{1,4}login(?:[ \t]{1,4}--?\w+)*[ \t]{1,4}(?P<s>[A-Za-z0-9_-]{30,200})"),
    _form(rb"(?<![\w.-])wandb\.login\([^\n]{0,100}?[\"'](?P<s>[A-Za-z0-9_-]{30,200})"),
    _form(rb"(?<![\w.-])vault[ \t]{1,4}login[ \t]{1,4}(?:[\w=-]+[ \t]{1,4})?(?P<s>[A-Za-z0-9_.-]{10,200})", _mixed),
    _form(rb"(?<![\w.-])aws[ \t]{1,4}configure[ \t]{1,4}set[ \t]{1,4}[\w.]{0,60}(?:secret|token)[\w.]{0,60}[ \t]{1,4}(?P<s>\S{1,500})"),
    _form(rb"(?<![\w.-])mc[ \t]{1,4}(?:alias[ \t]{1,4}set|config[ \t]{1,4}host[ \t]{1,4}add)[ \t]{1,4}\S{1,100}[ \t]{1,4}\S{1,300}[ \t]{1,4}\S{1,200}[ \t]{1,4}(?P<s>\S{1,300})"),
    _form(rb"(?<![\w.-])echo[ \t]{1,4}(?:-n[ \t]{1,4})?" + _ONE + rb"[\"']?[ \t]{0,4}\|[ \t]{0,4}(?:sudo[ \t]{1,4}-S|kinit|passwd|(?:docker|podman|helm|oc)[^\n|]{0,200}--password-stdin)"),
    _form(rb"(?<![\w.-])echo[ \t]{1,4}(?:-n[ \t]{1,4})?[\"']?[^\s:\"']{1,100}:(?P<s>[^\r\n\"'|]{1,200}?)[\"']?[ \t]{0,4}\|[ \t]{0,4}(?:sudo[ \t]{1,4})?chpasswd"),
    _form(rb"(?<![\w.-])(?:kinit|sudo[ \t]{1,4}-S|passwd|cryptsetup)[^\n|;<]{0,200}<<<[ \t]{0,4}" + _ONE),
    _form(rb"(?<![\w-])pass(?=:)(?<=[ \t]pass):" + _ONE),
    # An option of any command: --db-password hunter2, '--token', 'x'
    _form(
        rb"(?<![\w-])--?(?:[A-Za-z]{1,20}[-_]){0,3}(?:password|passwd|passphrase|pass|token|secret|api[-_]?key|secret[-_]key|access[-_]key|auth[-_]key)"
        rb"(?:[\"'],?[ \t]{1,4}(?=[\"'])|[ \t]{1,4}(?!-))" + _ONE, _given, re.I),
)  # fmt: skip


def _authorization(found: re.Match[bytes]) -> bool:
    # "authorization: denied by policy" is a sentence, and "Bearer $TOKEN" names the secret's location.
    scheme, _, value = found["s"].partition(b" ")
    if scheme.isalpha() and _VARIABLE.match(value):
        return False
    return not re.fullmatch(rb"(?:[a-z]+[ \t]+)+[a-z]+[.!]?\s*|[a-z]{1,12}", found["s"])


def _has_at(found: re.Match[bytes]) -> bool:
    return is_mixed(found["s"]) or len(found["s"]) >= 30


_CONTEXTS = (
    _form(
        rb"(?P<s>-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        rb"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\n)?|\Z))", flags=re.DOTALL),
    _form(rb"\$ANSIBLE_VAULT;[^\r\n]{1,100}\r?\n(?P<s>(?:[ \t]*[0-9a-f]{1,200}[ \t]*\r?\n?){1,5000})"),
    _form(rb"Private-Lines: \d{1,4}\r?\n(?P<s>(?:[A-Za-z0-9+/=]{1,100}\r?\n){1,200})"),
    _form(rb"Private-MAC: (?P<s>[0-9a-f]{8,200})"),
    _form(  # schemes with quoted parameters: the whole line
        _EDGE + rb"(?:proxy-)?authorization[\"']?\s{0,4}[:=]" + _BREAK +
        rb"[\"']?(?P<s>(?:Digest|AWS4-[\w-]{1,40}|OAuth|Signature|Hawk|MAC)[ \t][^\r\n]{1,4000})", flags=re.I),
    _form(
        _EDGE + rb"(?:proxy-)?authorization[\"']?[ \t]{0,4}[:=]" + _BREAK + rb"(?:[bfru]{1,2}(?=[\"']))?[\"']?"
        rb"(?P<s>[A-Za-z][\w-]{0,30}[ \t]{0,4}\\?\r?\n[ \t]{1,8}[^\s\"']{4,4000}|[^\s\"'][^\r\n\"']{0,4000})", _authorization, re.I),
    _form(_EDGE + rb"bearer[ \t]{1,4}(?P<s>[A-Za-z0-9._~+/=-]{10,4000})", _mixed, re.I),
    _form(_EDGE + rb"basic[ \t]{1,4}(?P<s>[A-Za-z0-9+/]{8,2000}={0,2})", lambda found: is_basic(found["s"]), re.I),
    _form(rb"\bAUTH[ \t](?:PLAIN|LOGIN)[ \t](?P<s>[A-Za-z0-9+/=]{8,1000})"),
    _form(_EDGE + rb"[a-z][a-z0-9+.-]{0,20}://(?P<s>[^\s/:@\"'<>]{0,200}:[^\s/\"'<>]{1,500})(?=@)", flags=re.I),
    _form(_EDGE + rb"[a-z][a-z0-9+.-]{0,20}://(?P<s>[A-Za-z0-9_.~%+=-]{16,500})(?=@)", _has_at, re.I),
    _form(_EDGE + rb"(?:set-)?cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?P<s>[^\s=;\"']{1,100}=[^\r\n\"']{4,4000})", flags=re.I),
    _form(rb"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9/_-]{10,200})"),
    _form(rb"discord(?:app)?\.com/api/webhooks/\d{5,30}/(?P<s>[A-Za-z0-9_-]{20,200})"),
    _form(rb"\.webhook\.office\.com/webhookb2/(?P<s>[A-Za-z0-9@/-]{20,400})"),
    _form(rb"api\.telegram\.org/bot(?P<s>\d{5,15}:[A-Za-z0-9_-]{20,60})"),
    _form(rb"[?&]key=(?P<s>[A-Za-z0-9_-]{16,200})"),
    _form(rb"\blogin\s{1,20}[^\s]{1,200}\s{1,20}password\s{1,20}(?P<s>\S{1,500})"),
    _form(
        rb"^[ \t]*(?:\*|[^:\s#]{0,100}[A-Za-z.][^:\s]{0,100}):(?:\*|54\d\d|6432):[^:\s]{1,100}:[^:\s]{1,100}:(?P<s>\S{1,300})[ \t]*\r?$",
        flags=re.M),
    # SQL: CREATE USER ann IDENTIFIED BY '...', ALTER ROLE ann WITH ENCRYPTED PASSWORD '...'
    _form(
        rb"\b(?:identified[ \t]{1,4}(?:with[ \t]{1,4}\S{1,60}[ \t]{1,4})?(?:by|as)|(?:create|alter)[ \t]{1,4}(?:user|role)[^\n;]{0,300}?[ \t]password"
        rb"|set[ \t]{1,4}password[^\n;]{0,200}?=)[ \t]{0,4}(?:password\()?[ \t]{0,4}'(?P<s>(?:[^'\r\n]|''){1,500})'", flags=re.I),
    _form(rb"\bconda\.anaconda\.org/t/(?P<s>[A-Za-z0-9-]{8,200})(?=/)"),
    _form(rb"[\"']username[\"'][ \t]{0,4}:[ \t]{0,4}[\"'][^\"'\r\n]{1,100}[\"'][ \t]{0,4},\s{0,20}[\"']key[\"'][ \t]{0,4}:[ \t]{0,4}[\"'](?P<s>[A-Za-z0-9_-]{16,200})"),
    _form(rb"\brequirepass[ \t]{1,20}(?P<s>[^\s]{1,500})"),
    _form(rb"\br[ow](?:write)?community6?[ \t]{1,20}(?P<s>[^\s]{1,200})"),
    _form(rb"\bsetenv[ \t]{1,4}\w{0,60}?(?:PASS|PASSWORD|PASSWD|TOKEN|SECRET|KEY|PWD)[ \t]{1,4}" + _ONE, flags=re.I),
    # os.environ.setdefault("HF_TOKEN", "..."), os.putenv, monkeypatch.setenv, Sys.setenv
    _form(
        rb"(?:setdefault|putenv|setenv)\([\"']\w{0,60}?(?:PASS|PASSWORD|PASSWD|TOKEN|SECRET|[_-]KEY|APIKEY|PWD)[\"'][ \t]{0,4},[ \t]{0,4}"
        rb"[bfru]{0,2}[\"'](?P<s>[^\"'\r\n]{1,500})[\"']", flags=re.I),
    _form(rb"#[ \t]{0,8}define[ \t]{1,8}\w{0,60}?(?:PASS|PASSWORD|PASSWD|TOKEN|SECRET|API_?KEY)[ \t]{1,20}\"(?P<s>[^\"\r\n]{1,500})\"", flags=re.I),
    _form(rb"SharedAccessSignature=(?P<s>[^\s;\"']{8,500})"),
    _form(rb"TF_TOKEN_\w{1,100}=[\"']?(?P<s>[^\s\"']{6,500})"),
    _form(rb"Unseal Key \d{1,2}:[ \t]{1,4}(?P<s>[A-Za-z0-9+/=]{20,200})"),
    _form(rb"\bkey[ \t]{0,4}=[ \t]{0,4}(?P<s>AQ[A-Za-z0-9+/]{30,60}={0,2})"),
    _form(rb"<(?:[\w-]{1,40}:)?[\w.-]{0,40}?(?:password|passwd|passphrase|secret|token|api-?key)(?:[ \t][^<>]{0,300})?>(?P<s>[^<>\r\n]{1,1000})</", flags=re.I),
    _form(
        rb"<[\w:-]{1,60}[ \t][^<>]{0,200}?(?:name|key|id)=[\"'][\w.-]{0,60}?(?:password|passwd|passphrase|secret|token|api-?key)[\"']"
        rb"[ \t][^<>]{0,200}?value=[\"'](?P<s>[^\"'<>\r\n]{1,1000})", flags=re.I),
    _form(rb"\bpassword[ \t]{1,4}(?:is[ \t]{0,4}:?[ \t]{0,4})?(?P<s>[^\s\"'=:]{6,200})(?=\s|\Z|[.,](?:\s|\Z))", _mixed, re.I),
    _form(rb"\bpassword[ \t]{1,4}is[ \t]{0,4}:[ \t]{0,4}(?P<s>\S{1,200})", flags=re.I),
)  # fmt: skip


def _of_secret(found: re.Match[bytes]) -> bool:
    """Whether a line under ``data:`` belongs to a Kubernetes Secret."""
    near = found.string[max(0, found.start() - 2000) : found.end() + 2000]
    return re.search(rb"kind[\"']?:[ \t]{0,4}[\"']?Secret\b", near) is not None


_KUBERNETES = _form(
    rb"^[ \t]*(?:data|stringData):[ \t]*\r?\n(?P<s>(?:[ \t]+[\w.-]{1,200}:[ \t]*[^\s]{2,4000}[ \t]*(?:\r?\n|\Z)){1,200})",
    _of_secret, re.M,
)  # fmt: skip

FORMS: tuple[Form, ...] = (
    *_CONTEXTS[:4],
    _form(_EDGE + rb"(?P<s>" + rb"|".join(_TOKENS) + rb")"),
    _form(_EDGE + rb"(?P<s>sk-[A-Za-z0-9_-]{16,255})", _mixed),
    *_CONTEXTS[4:],
    *_COMMANDS,
    _KUBERNETES,
)
