#!/usr/bin/env python3
"""Publishes jobs to Forebay over HTTP: from a file with one job a line, or one job from flags.

    publish.py --file jobs.jsonl --token-file token
    publish.py --subject resnet-0412 --queue vision/batch --gpus 4 --run-seconds 60

A line of the file is {"subject": "...", "data": {...}}, or a whole CloudEvent. Needs nothing but Python 3.9.

Sending is safe to repeat: a job is known by its subject, so the same job sent twice is one job. That is why this retries
whatever may pass (429, 503, a lost connection) with growing pauses, and why a crashed publisher may just run again.

Exit codes: 0 all taken, 1 some were rejected (which and why is on stderr), 2 bad input, 3 given up.
"""

import argparse
import datetime
import hashlib
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request

# Well below the server's bounds of 16,384 events and 4 MiB.
MOST_EVENTS = 500
MOST_BYTES = 1 << 20
# With pauses of 1 to 30 s, some three minutes.
MOST_TRIES = 10
LONGEST_PAUSE_S = 30.0


class GivenUp(Exception):
    """The server did not take it, and trying again would not help, or has not."""


def cloud_event(job, source):
    """A job as a CloudEvent. Its id follows from what it says, so that a retry carries the same one."""
    event = {"specversion": "1.0", "type": "job.submitted", "source": source}
    event.update(job)
    data = event.get("data")
    if isinstance(data, dict) and data.get("rerun") and "id" not in event and "time" not in event:
        # Each publication asks for a run of its own; a retry of this one carries the same time.
        event["time"] = datetime.datetime.now(datetime.timezone.utc).isoformat()
    if "id" not in event:
        text = json.dumps(event, sort_keys=True, separators=(",", ":"))
        event["id"] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return event


def jobs_of(args):
    """The jobs to publish, each with its line."""
    if args.file is None:
        data = {"gang": {"workers": args.workers, "each": {"gpus": args.gpus}}}
        if args.queue:
            data["queue"] = args.queue
        if args.run_seconds is not None:
            # Only the simulated cloud reads this: how long the job runs there.
            data["simulation"] = {"durationS": args.run_seconds}
        yield 1, {"subject": args.subject, "data": data}
        return
    with sys.stdin if args.file == "-" else open(args.file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                job = json.loads(line)
            except ValueError as error:
                raise SystemExit(bad(f"{args.file}, line {number}: not JSON: {error}")) from None
            if not isinstance(job, dict) or not isinstance(job.get("subject"), str):
                raise SystemExit(bad(f'{args.file}, line {number}: a job needs a "subject": its name'))
            yield number, job


def bad(message):
    print(f"error: {message}", file=sys.stderr)
    return 2


def batches(jobs, source):
    """Events in pieces that one request may have: (lines, body)."""
    lines, events, size = [], [], 0
    for line, job in jobs:
        event = json.dumps(cloud_event(job, source), separators=(",", ":"))
        if events and (len(events) == MOST_EVENTS or size + len(event) > MOST_BYTES):
            yield lines, events
            lines, events, size = [], [], 0
        lines.append(line)
        events.append(event)
        size += len(event)
    if events:
        yield lines, events


def post(server, token, events):
    """Sends one batch until there is an answer: what was accepted, and what was rejected."""
    body = ("[" + ",".join(events) + "]").encode()
    headers = {"content-type": "application/cloudevents-batch+json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    for attempt in range(MOST_TRIES):
        wait = None
        try:
            request = urllib.request.Request(f"{server}/v1/events", data=body, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
                return answer["accepted"], answer["rejected"]
        except urllib.error.HTTPError as error:
            answer = read_json(error)
            if error.code == 400 and answer.get("rejected"):
                return [], answer["rejected"]
            told = answer.get("error", {})
            why = f"{error.code} {told.get('message', error.reason)}: {told.get('remedy', '')}"
            if error.code not in (429, 502, 503, 504):
                raise GivenUp(why) from None
            after = error.headers.get("retry-after", "")
            wait = float(after) if after.isdigit() else None
        except (OSError, ValueError) as error:
            # Lost on the way, there or back. If it arrived, the same jobs are known when they come again.
            why = f"no answer from {server} ({error})"
        if attempt + 1 == MOST_TRIES:
            break
        pause = min(max(wait or 0.0, 2.0**attempt), LONGEST_PAUSE_S) * random.uniform(1.0, 1.1)
        print(f"{why}; trying again in {pause:.0f} s", file=sys.stderr)
        time.sleep(pause)
    raise GivenUp(f"{why}; given up after {MOST_TRIES} tries: run this again, nothing is doubled")


def read_json(response):
    try:
        answer = json.load(response)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def read_token(path):
    """The token from a file, or from FOREBAY_TOKEN. Never from an argument: those are seen by everybody on the machine."""
    if path is None:
        return os.environ.get("FOREBAY_TOKEN", "").strip()
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def arguments():
    parser = argparse.ArgumentParser(description="Publishes jobs to Forebay over HTTP.")
    parser.add_argument("--server", default=os.environ.get("FOREBAY_SERVER", "http://127.0.0.1:8080"))
    parser.add_argument("--token-file", help="file with the token; default: the variable FOREBAY_TOKEN")
    parser.add_argument("--source", default="//example/publish.py", help="the events' CloudEvents source")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--file", help="jobs, one JSON object a line; - is stdin")
    what.add_argument("--subject", help="publish one job of this name")
    parser.add_argument("--queue")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1, help="of each worker")
    parser.add_argument("--run-seconds", type=float, help="how long it runs in the simulated cloud")
    return parser.parse_args()


def main():
    args = arguments()
    accepted = known = rejected = 0
    try:
        token = read_token(args.token_file)
        for lines, events in batches(jobs_of(args), args.source):
            taken, refused = post(args.server.rstrip("/"), token, events)
            accepted += len(taken)
            known += sum(not one["new"] for one in taken)
            rejected += len(refused)
            for one in refused:
                print(
                    f"rejected: line {lines[one['index']]} ({one.get('subject')}): {one['code']}: {one['path']}: {one['message']}",
                    file=sys.stderr,
                )
    except GivenUp as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except (OSError, UnicodeError) as error:
        return bad(error)
    print(f"{accepted} accepted ({known} known already), {rejected} rejected")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main())
