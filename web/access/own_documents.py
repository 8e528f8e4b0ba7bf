"""The correlator's documents for users who see only their own jobs, field by field.

A field that is not named here is withheld, so a new field of a document stays hidden until it is added here. Lines of
evidence come from the events that the user may see (``Asks.seen_by``), never from the document. A sentence is shown if
it names no job, account or path of others.

| of an incident | is shown |
|---|---|
| id, start, end, detected_at, severity, category, status, final_at, confidence, unaffected_count | unchanged |
| root_cause, candidates | event, code, host, device; candidates on the user's own nodes, on a host of the evidence, or the root |
| hosts | those of the user's own runs, of the visible evidence, and the root's |
| jobs, slowed_jobs, unaffected_jobs | the user's own; other_jobs_count is the number of the others that were hit |
| events | visible ones: lines about the user's own runs; about hardware of their nodes, switches, the root |
| chain | steps to visible events: edge, delay, window, settings of Slurm; no step of others' jobs, hit_count and spared_count without their names |
| spans | of the hosts above |
| title, headline, grounds, doubts, waits_for, rivals | the sentences that name no other user's job, account or path |
| advice | what the user can do: submit again, or that Slurm queued the job again; nothing that is for those who run the cluster |
| gpu_hours_lost and every other field | withheld |

| of a verdict on an own run | is shown |
|---|---|
| category, incident_id, confidence, final, final_at, your_code, state, user, name, nodes, gpus, start, end, root_cause | unchanged |
| headline, summary, grounds, doubts, waits_for, rivals, change_my_mind | as an incident's sentences, without the site's settings; the run's own output is quoted whole |
| advice | as an incident's; without an incident the whole, but no commands |
| chain, evidence | as chain and events above |

| of an incident that slowed an own run | is shown |
|---|---|
| the run's slowdown | when, by how much, what kind of cause in words without names, on which of the run's own nodes (``web.slowdowns``) |
| the incident itself, its lines and its other jobs | withheld |

| of a replay | is shown |
|---|---|
| moments | those at which a visible line arrived, a run of the user ended or a verdict on one changed; with the time |
| arrived, verdicts | as events; of the user's own runs, as a verdict |
| incident | under its present name only: confidence, category, status, root_cause, the title as a sentence |
| every count, and how the last moment differs from what is stored | withheld |

Of another SlurmdTimeout are shown the jobs that are the user's own, and their nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from parsers.job_reasons import Meaning, meaning_of
from parsers.job_states import HELD, NOT_STARTED, Phase, in_phase
from parsers.record import JOB_OUTPUT
from store.door import WITHHELD, Question
from store.questions import events as event_questions
from store.questions import job_rows, sources
from web.shaping import wire

Row = dict[str, Any]
Document = Mapping[str, Any]
#: A file and the number of a line.
Place = tuple[str, int]

_INCIDENT = (
    "id",
    "start",
    "end",
    "detected_at",
    "severity",
    "category",
    "status",
    "final_at",
    "confidence",
    "unaffected_count",
)
_VERDICT = (
    "category", "incident_id", "confidence", "final", "final_at", "your_code", "state", "user", "name", "nodes", "gpus", "start", "end",
)  # fmt: skip
_EVENT = (
    "id", "time", "event", "line", "layer", "severity", "role", "received_time", "time_quality", "resolution_s", "clock_offset_s", "count",
    "authority",
)  # fmt: skip
_STEP = (
    "step", "cause", "effect", "edge", "lag_s", "window_s", "cause_fact", "effect_fact", "coincidence", "strength", "effect_time",
)  # fmt: skip
_OTHERS = ("where", "weight", "hit_count", "spared_count", "looked_at", "reached", "before")
_SPAN = ("lane", "layer", "host", "device", "start", "end", "kind")
_JOB = {
    "state": "state",
    "user": "user",
    "name": "name",
    "nodes": "node_list",
    "gpus": "gpus",
    "start": "start",
    "end": "end",
}

#: Commands that change nothing, or only a user's own jobs.
_FOR_USERS = re.compile(r"(?:squeue|sacct|sinfo|sshare|sprio|scancel|scontrol show)\b")
#: Settings of Faultline: what an owner cannot change is no hint for one.
_FOR_SITES = re.compile(r"\busers_can_[a-z_]+\b")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_JOBS = re.compile(r"(?i)\bjobs?(?:id)?[\s=#:]*((?:\d[\w@#:.\-]*(?:,\s*|\s+and\s+)?)+)")
#: What a window rests on: settings of Slurm, "SlurmdTimeout=300".
_SETTING = re.compile(r"\b[A-Z][A-Za-z]+=\d+(?:\.\d+)?\b")
_LISTED = re.compile(r"\s*\([^()]*\)")
#: How an operator's advice names the users to inform.
_TO_USERS = re.compile(r"^Tell .*? to submit again")
_UID = re.compile(r"(?i)\b(uid|gid)[ =:]*\d+")
_PATH = re.compile(r"(?<![\w.])/(?:[\w.@~-]+/)*[\w.@~-]+")
#: Folders of the system; any other folder may be a user's.
_SYSTEM = ("/dev/", "/sys/", "/proc/", "/etc/", "/run/", "/usr/", "/bin/", "/sbin/", "/lib/", "/system.slice/")
#: System accounts run jobs occasionally, and are ordinary words in sentences.
_NOBODYS = frozenset({"root", "slurm", "nobody"})
#: The correlator quotes this many characters of a line, followed by dots.
QUOTED = 117
#: A device that is a folder is shown only up to the file system.
_FOLDER = re.compile(r"/[A-Za-z_.][^/]*/")


def _picked(document: Document, names: Iterable[str]) -> Row:
    return {name: document[name] for name in names if name in document}


def _job_of(run: Row) -> tuple[str | None, str]:
    """The job of a run, by its name in its cluster: a job ID may be used again."""
    return run["cluster"], str(run["own_key"]).partition("#")[0]


def _is_held(reason: str) -> bool:
    """Does a job with this reason wait until somebody releases it? ``launch_failed_requeued_held`` is free text."""
    return meaning_of(reason) is Meaning.HELD or bool(re.search(r"(?i)(?<![a-z])held(?![a-z])", reason))


def _place_of(item: Document) -> Place:
    """Where a document says that a line is; without a file or a number if it does not."""
    return str(item.get("source") or ""), int(item.get("line") or 0)


class OwnRows(Protocol):
    """The rows about one user; ``web.access.own.OwnReader`` answers from those that the user may see."""

    user: str

    def ask(self, question: Question) -> list[Row]:
        """The rows of a question of ``store.questions``."""

    def named_runs(self) -> list[Row]:
        """The user's runs with their names."""

    def runs_of(self, incident: Row) -> list[Row]:
        """The user's runs whose verdicts blame an incident."""

    def others(self) -> frozenset[str]:
        """Other users who run jobs here: names that no sentence for this user may contain. Never shown."""


class OwnDocuments:
    """Filters documents for one user; created for each request."""

    def __init__(self, read: OwnRows) -> None:
        self.read = read
        #: By cluster: the names of events that were looked for, and those that the user may see.
        self._asked: dict[str | None, set[str]] = {}
        self._seen: dict[str | None, dict[str, Row]] = {}
        #: By cluster: the places of output that were looked for, and the lines of the user's own output there.
        self._places: dict[str | None, set[Place]] = {}
        self._lines: dict[str | None, dict[Place, Row]] = {}

    # -- documents -----------------------------------------------------------------------------------------------------

    def incident(self, row: Row, document: Document) -> Row:
        """``row``: the incident as the user may see it."""
        events = self._events(document.get("events"), row["cluster"])
        ours = self._runs_of(row)
        nodes = {node for run in ours.values() for node in run["nodes"] or ()}
        hosts = nodes | {str(event["host"]) for event in events if event["host"]} | {str(row["root_host"] or "")} - {""}
        jobs = [item for item in document.get("jobs") or () if item.get("job_id") in ours]
        shown = _picked(document, _INCIDENT) | self._causes(document, hosts) | self._sentences(document, events)
        return shown | {
            "title": self._spoken(document.get("title"), events) or self._title(row),
            "headline": self._spoken(document.get("headline"), events) or self._title(row),
            "hosts": sorted(hosts & ({str(h) for h in document.get("hosts") or ()} | {str(row["root_host"])})),
            "jobs": [
                self._job(ours[item["job_id"]]) | {"confidence": item.get("confidence")}
                | ({"ended_with": self._name(item["ended_with"])} if item.get("ended_with") in ours else {}) for item in jobs
            ],
            "other_jobs_count": len(document.get("jobs") or ()) - len(jobs),
            "slowed_jobs": [self._name(key) for key in document.get("slowed_jobs") or () if key in self._own_keys(row["cluster"])],
            "unaffected_jobs": [
                {"job_id": self._name(item["job_id"]), **_picked(item, ("state", "why"))}
                for item in document.get("unaffected_jobs") or () if item.get("job_id") in self._own_keys(row["cluster"])
            ],
            "events": events, "chain": self._chain(document.get("chain"), events, hosts),
            "advice": self._advice(document, events, [ours[item["job_id"]] for item in jobs]),
            "spans": [
                _picked(item, _SPAN) | {"text": self._spoken(item.get("text"), events)}
                for item in document.get("spans") or ()
                if item.get("host") in hosts and not _FOLDER.search(f"{item.get('device')} {item.get('lane')}")
            ],
        }  # fmt: skip

    def verdict(self, row: Row, document: Document) -> Row:
        """``row``: the user's own run."""
        if not document:
            return {}
        events = self._events(document.get("evidence"), row["cluster"])
        hosts = {str(event["host"]) for event in events if event["host"]} | set(row["nodes"] or ())
        shown = _picked(document, _VERDICT) | self._causes(document, hosts) | self._sentences(document, events)
        shown.pop("candidates", None)
        return shown | {
            "headline": self._spoken(document.get("headline"), events), "summary": self._spoken(document.get("summary"), events),
            "change_my_mind": " ".join(
                text for text in _SENTENCE.split(self._spoken(document.get("change_my_mind"), events)) if not _FOR_SITES.search(text)
            ),
            "chain": self._chain(document.get("chain"), events, hosts), "evidence": events,
            "advice": self._advice(document, events, [row] if document.get("incident_id") else None),
        }  # fmt: skip

    def replay(self, row: Row, document: Document) -> Row:
        """``row``: the incident as the user may see it; ``document``: as ``web.replaying`` makes it."""
        keys = self._own_keys(row["cluster"])
        visible = {
            event["id"]: event
            for event in self._events([one for at in document["moments"] for one in at["arrived"] if one["id"]], row["cluster"])
        }  # fmt: skip
        moments: list[Row] = []
        for at in document["moments"]:
            verdicts = {self._name(key): self._stated(given) for key, given in at["verdicts"].items() if key in keys}
            arrived = [
                visible.get(one["id"], one) for one in at["arrived"]
                if one["id"] in visible or (one["id"] is None and one.get("run") in keys)
            ]  # fmt: skip
            if not arrived and (not verdicts or (moments and moments[-1]["verdicts"] == verdicts)):
                continue
            incident = at["incident"] if at["incident"] and at["incident"]["id"] == row["incident_id"] else None
            moments.append({
                "time": at["time"], "arrived": arrived, "verdicts": verdicts,
                "incident": None if incident is None else self._stated(incident, ("id", "severity", "status")),
            })  # fmt: skip
        return {"incident_id": row["incident_id"], "moments": moments, "differs": []}

    def what_if(self, row: Row, document: Document) -> Row:
        """``row``: the incident as the user may see it; ``document``: as ``web.what_if`` makes it, with ``own_key``."""
        keys = self._own_keys(row["cluster"])
        jobs = [one | {"job_id": self._name(one["own_key"])} for one in document["jobs"] if one["own_key"] in keys]
        nodes = {host for one in jobs for host in one["nodes"]}
        return {**document, "jobs": jobs, "nodes": [one for one in document["nodes"] if one["host"] in nodes]}

    def _stated(self, given: Document | None, more: Iterable[str] = ("state", "final")) -> Row:
        """A verdict or an incident as it stood at a moment."""
        if given is None:
            return {"verdict": "none", "category": None, "confidence": None, "root_cause": None}
        is_final = given.get("final", given.get("status") == "final")
        shown = _picked(given, ("category", "confidence", "final_at", *more)) | self._causes(given, ())
        shown.pop("candidates", None)
        shown["waits_for"] = [text for one in given.get("waits_for") or () if (text := self._spoken(one, []))]
        shown |= {name: self._spoken(given[name], []) for name in ("title", "headline", "summary") if name in given}
        return shown | {"verdict": "final" if is_final else "provisional"}

    # -- fields --------------------------------------------------------------------------------------------------------

    def _events(self, listed: Any, cluster: str | None) -> list[Row]:
        """The document's lines that the user may see, with the text that they may see.

        A line of the user's own output that is no event is found by its place.
        """
        asked = [item for item in listed or () if isinstance(item, Mapping)]
        if not asked:
            return []
        self.read_events([asked], cluster)
        seen, output_lines = self._seen[cluster], self._lines[cluster]
        out = []
        for item in asked:
            found = seen.get(str(item.get("id"))) or output_lines.get(_place_of(item))
            if found is not None:
                shown = {"host": found["host"], "device": found["device"], "message": found["message"]}
                out.append(_picked(item, _EVENT) | shown | {"source": found["file"] or found["source"], "also": []})
                self._own_words.update([str(found["message"])] if found["source"] in JOB_OUTPUT else [])
        return out

    def read_events(self, lists: Iterable[Iterable[Document]], cluster: str | None) -> None:
        """Reads the lines of documents that the user may see, those of many documents at once; what was read before is not read again."""
        asked, seen = self._asked.setdefault(cluster, set()), self._seen.setdefault(cluster, {})
        items = [item for listed in lists for item in listed]
        names = list(dict.fromkeys(str(item["id"]) for item in items if item.get("id") is not None))
        if new := [name for name in names if name not in asked]:
            seen |= {str(found["event_id"]): found for found in self.read.ask(event_questions.of_names(new, cluster))}
            asked.update(new)
        self._read_output({_place_of(item) for item in items if str(item.get("id")) not in seen}, cluster)

    def _read_output(self, places: Collection[Place], cluster: str | None) -> None:
        """Reads the lines of the user's own output at the places that documents name."""
        asked, lines = self._places.setdefault(cluster, set()), self._lines.setdefault(cluster, {})
        if new := {(file, line) for file, line in places if file and line} - asked:
            files, numbers = sorted({file for file, _ in new}), sorted({line for _, line in new})
            found = self.read.ask(sources.lines_at(files, numbers, cluster))
            lines |= {(str(row["file"]), int(row["line"])): row for row in found}
            asked.update(new)

    def _chain(self, steps: Any, events: list[Row], hosts: Collection[str]) -> list[Row]:
        seen = {event["id"] for event in events if event.get("id") is not None}
        out = []
        for step in steps or ():
            about = str(step.get("effect_fact") or "")
            silent = step.get("effect") is None and about and not about.startswith(("run.", "job."))
            own = step.get("effect") is None and self._spoken(step.get("effect_says"), events)
            if step.get("effect") not in seen and not (silent and step.get("effect_host") in hosts) and not own:
                continue
            shown = _picked(step, _STEP)
            shown["cause"] = shown.get("cause") if shown.get("cause") in seen else None
            words = {name: self._spoken(step.get(name), events) for name in ("text", "cause_says", "effect_says")}
            words["because"] = ", ".join(_SETTING.findall(str(step.get("because") or "")))
            shown |= words
            shown |= self._place("cause", step, hosts) | self._place("effect", step, hosts)
            if isinstance(step.get("others"), Mapping):
                shown["others"] = _picked(step["others"], _OTHERS)
            out.append(shown)
        return out

    def _place(self, end: str, step: Row, hosts: Collection[str]) -> Row:
        """Where and when a step begins or ends, if that is on a visible host or about the user's own run."""
        run, host = str(step.get(f"{end}_run")), step.get(f"{end}_host")
        if run in self._numbers:
            return {f"{end}_{name}": step.get(f"{end}_{name}") for name in ("time", "pm_s", "until", "run")} | {
                f"{end}_host": None
            }
        if step.get(f"{end}_run") is None and host in hosts:
            return {f"{end}_{name}": step.get(f"{end}_{name}") for name in ("time", "pm_s", "until", "host", "device")}
        return {f"{end}_host": None}

    def _causes(self, document: Document, hosts: Collection[str]) -> Row:
        shown: Row = {}
        if isinstance(root := document.get("root_cause"), Mapping):
            shown["root_cause"] = self._cause(root, ("event", "code", "host", "device"))
        shown["candidates"] = [
            self._cause(item, ("event", "host", "device", "probability"))
            for item in document.get("candidates") or () if item.get("host") in {None, *hosts}
        ]  # fmt: skip
        return shown

    def _cause(self, cause: Document, names: Iterable[str]) -> Row:
        shown = _picked(cause, names)
        return shown | {"device": None} if _FOLDER.search(str(shown.get("device"))) else shown

    def _sentences(self, document: Document, events: list[Row]) -> Row:
        """Grounds, doubts, reasons to wait and rivals without withheld sentences."""
        lists = {
            name: [text for one in document.get(name) or () if (text := self._spoken(one, events))]
            for name in ("grounds", "doubts", "waits_for")
        }
        rivals = [
            {**_picked(item, ("host",)), "device": None, "cause": cause, "rejected": self._spoken(item.get("rejected"), events)}
            for item in document.get("rivals") or () if (cause := self._spoken(item.get("cause"), events))
        ]  # fmt: skip
        return {**lists, "rivals": rivals}

    def _advice(self, document: Document, events: list[Row], ended: Sequence[Row] | None) -> list[Row]:
        """What this user can do. ``ended``: the user's runs that the incident ended; None if no incident is to blame.

        The other advice of an incident is for those who run the cluster: commands that a user may not give.
        """
        listed = [item for item in document.get("advice") or () if isinstance(item, Mapping)]
        if ended is None:
            return [
                {"text": text, "command": self._command(item.get("command"), events)}
                for item in listed
                if not item.get("users") and (text := self._spoken(item.get("text"), events))
            ]
        named = [str(item.get("text") or "") for item in listed if self.read.user in (item.get("users") or ())]
        texts = [_TO_USERS.sub("Submit again", text) for text in named]
        if ended and all(map(self._runs_again, ended)):
            them = "it" if len(ended) == 1 else "them"
            texts = [f"You need not submit anything: Slurm queued {them} again by itself."]
        return [{"text": text, "command": None} for one in texts if (text := self._spoken(one, events))]

    def _runs_again(self, run: Row) -> bool:
        """Is the job in the queue again, or does its newest run run, or has that ended well? A held job waits for somebody."""
        newest = max(
            (one for one in [run, *self._own] if _job_of(one) == _job_of(run)), key=lambda one: one["attempt"] or 0
        )
        state, again = str(newest["state"]), in_phase(Phase.REQUEUED)
        if (newest["attempt"] or 0) > (run["attempt"] or 0):
            again |= in_phase(Phase.WAITING, Phase.RUNNING, Phase.SUCCEEDED)
        if state not in again - HELD:
            return False
        if state not in NOT_STARTED:
            return True
        reasons = self.read.ask(job_rows.waiting_reasons(run["job_id"], run["cluster"]))
        return not any(_is_held(str(row["reason"])) for row in reasons)

    def _command(self, command: Any, events: list[Row]) -> str | None:
        """A command that any user of the cluster may run; the others are for its operators."""
        return self._spoken(command, events) or None if _FOR_USERS.match(str(command)) else None

    def _title(self, row: Row) -> str:
        return " ".join(str(row[name]) for name in ("root_event", "root_host", "root_device") if row[name]) or str(
            row["category"]
        )

    def _runs_of(self, incident: Row) -> dict[str, Row]:
        """The user's runs whose verdicts blame an incident, by their name in their cluster."""
        return {str(run["own_key"]): run for run in self.read.runs_of(incident)}

    def _job(self, run: Row) -> Row:
        return {"job_id": run["run_key"], **{name: wire(run[column]) for name, column in _JOB.items()}}

    # -- sentences -----------------------------------------------------------------------------------------------------

    @cached_property
    def _own_words(self) -> set[str]:
        """Output of the user's runs that was read so far: it may be quoted."""
        return set()

    @cached_property
    def _own(self) -> list[Row]:
        return self.read.named_runs()

    def _own_keys(self, cluster: str | None) -> set[str]:
        return {str(run["own_key"]) for run in self._own if run["cluster"] == cluster}

    def _name(self, own_key: str) -> str:
        return next((str(run["run_key"]) for run in self._own if run["own_key"] == own_key), own_key)

    @cached_property
    def _numbers(self) -> set[str]:
        """The names of the user's runs in documents. The bare number may be another user's later job."""
        return {str(run[name]) for run in self._own for name in ("run_key", "own_key")}

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        return tuple({f"{run['work_dir'].rstrip('/')}/" for run in self._own if run["work_dir"]}) + _SYSTEM

    def _spoken(self, text: Any, events: list[Row]) -> str:
        """The sentences of a text that name no other user; "" if none is left.

        Quotes of the user's own output stay unchanged.
        """
        if not isinstance(text, str) or not text:
            return ""
        quotes: list[str] = []
        for words in sorted(self._own_words, key=len, reverse=True):
            for quote in (words, words[:QUOTED] + "..."):
                if len(words) > 3 and quote in text:
                    text = text.replace(quote, f"\x00{len(quotes)}\x00")
                    quotes.append(quote)
        kept = " ".join(filter(None, map(self._sentence, _SENTENCE.split(text))))
        return re.sub(r"\x00(\d+)\x00", lambda found: quotes[int(found[1])], kept)

    def _sentence(self, text: str) -> str:
        if WITHHELD in text:
            return ""
        if re.search(r"(?i)\bother jobs?\b", text):
            text = _LISTED.sub("", text)  # which ones
        for found in _JOBS.finditer(text):
            named = re.findall(r"\d[\w@#:.\-]*", found[1])
            if not {name.rstrip(".:-") for name in named} <= self._numbers:
                return ""
        if any(not f"{path}/".startswith(self._folders) for path in _PATH.findall(text)):
            return ""
        words = re.findall(r"[\w.@-]+", text)
        if {form for word in words for form in (word, word.strip(".-@"))} & (self.read.others() - _NOBODYS):
            return ""
        return _UID.sub(r"another \1", text)
