#!/usr/bin/env python3
"""A workload that saves its work and goes on from where it was: the checkpoint contract of docs/CHECKPOINTS.md, in a page.

    FOREBAY_CHECKPOINT_URI=file:///tmp/ckpt/ train.py --work-s 60 --step-s 0.5 --every-s 5

It does `--work-s` seconds of work in steps of `--step-s`, saves each `--every-s`, and at SIGTERM saves once more and ends. Its "model" is a
chain of hashes over all steps, which comes out the same only if no step was lost and none was done twice. It resumes from the newest
manifest that verifies.

Environment, set by whoever starts the run: FOREBAY_CHECKPOINT_URI (needed), FOREBAY_JOB, FOREBAY_ATTEMPT, FOREBAY_TOKEN (the attempt's;
or FOREBAY_TOKEN_FILE, a file with it), FOREBAY_RESUME_S, FOREBAY_GRACE_S, FOREBAY_URL (where to report; without it nothing is
reported), FOREBAY_API_TOKEN_FILE (where the controller asks for tokens). For S3 also what boto3 reads: AWS_REGION, AWS_ENDPOINT_URL and the credentials.

Needs Python 3.11; boto3 where the address is s3://, nothing else.
Exit codes: 0 done, 143 saved and stopped at SIGTERM, 1 failed, 2 bad input.
"""

import argparse
import base64
import datetime
import hashlib
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

MANIFEST = re.compile(r"manifests/(\d{10})-(\d{10})\.json")
# What the end of a run is worth: some two minutes of trying.
MOST_TRIES = 8
LONGEST_PAUSE_S = 30.0
# Past this a file has to be uploaded in parts; see docs/CHECKPOINTS.md.
MOST_AT_ONCE = 5 << 30


class Files:
    """A folder that all nodes and the controller see under one path."""

    def __init__(self, path):
        self.root = Path("/") / path
        self.root.mkdir(parents=True, exist_ok=True)

    def put(self, key, data):
        """Whole or not at all: under another name first, on the disk before it gets its own."""
        target = self.root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.{os.getpid()}")
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, key):
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def manifests(self):
        return [f"manifests/{path.name}" for path in (self.root / "manifests").glob("*.json")]


class S3:
    """A bucket. Its own SHA-256 is what the controller looks at, so each upload asks for one."""

    def __init__(self, bucket, prefix):
        import boto3  # Only where the address is s3://.
        from botocore.config import Config

        style = {"addressing_style": "path"} if os.environ.get("AWS_ENDPOINT_URL") else {}
        self.client = boto3.client("s3", region_name=os.environ.get("AWS_REGION"), config=Config(s3=style))
        self.bucket, self.prefix = bucket, prefix

    def put(self, key, data):
        if len(data) > MOST_AT_ONCE:
            raise ValueError(f"{key} has {len(data)} bytes: upload it in parts, see docs/CHECKPOINTS.md")
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data, ChecksumSHA256=digest)

    def get(self, key):
        try:
            return self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return None

    def manifests(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}manifests/")
        return [item["Key"].removeprefix(self.prefix) for page in pages for item in page.get("Contents", [])]


def open_store(uri):
    if uri.startswith("s3://"):
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        prefix = prefix.rstrip("/")
        return S3(bucket, f"{prefix}/" if prefix else "")
    if uri.startswith("file:///"):
        return Files(uri.removeprefix("file:///").rstrip("/"))
    sys.exit(bad(f"FOREBAY_CHECKPOINT_URI is `{uri}`; give s3://bucket/prefix/ or file:///path/"))


def bad(text):
    print(text, file=sys.stderr)
    return 2


class Run:
    """This run's place among the job's checkpoints."""

    def __init__(self, store, job, attempt):
        self.store, self.job, self.attempt = store, job, attempt
        self.sequence = 0

    def resume(self):
        """The state of the newest checkpoint that verifies, and the work that was done by then."""
        names = sorted((m.groups() + (m[0],) for m in map(MANIFEST.fullmatch, self.store.manifests()) if m), reverse=True)
        # Above all that are there, whoever wrote them: the newest is found by its name.
        self.sequence = max((int(sequence) for _, sequence, _ in names), default=0)
        for attempt, _, key in names:
            if int(attempt) > self.attempt:
                continue
            try:
                manifest, files = self.verified(key)
            except (ValueError, KeyError, TypeError) as error:
                print(f"passed over {key}: {error}", file=sys.stderr)
                continue
            return json.loads(files[0]), float(manifest["progressS"])
        return None, 0.0

    def verified(self, key):
        manifest = json.loads(self.store.get(key) or b"{}")
        if manifest["version"] != 1 or manifest["job"] != self.job:
            raise ValueError(f"it is of {manifest['job']}, version {manifest['version']}")
        return manifest, [self.whole(entry) for entry in manifest["files"]]

    def whole(self, entry):
        data = self.store.get(entry["key"])
        if data is None:
            raise ValueError(f"{entry['key']} is not there")
        if len(data) != entry["size"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ValueError(f"{entry['key']} is not what it was")
        return data

    def save(self, state, progress_s):
        """Files first, under names that nothing had before; the manifest last."""
        self.sequence += 1
        key = f"attempt-{self.attempt:010d}/{self.sequence:010d}/model.json"
        data = json.dumps(state).encode()
        self.store.put(key, data)
        entry = {"key": key, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        manifest = {"version": 1, "job": self.job, "attempt": self.attempt, "sequence": self.sequence,
                    "progressS": progress_s, "files": [entry], "createdAt": now}
        name = f"manifests/{self.attempt:010d}-{self.sequence:010d}.json"
        self.store.put(name, json.dumps(manifest).encode())
        return name


class Reports:
    """Tells the controller. A checkpoint's report is a hint and is sent once; how the run ended is sent until it is taken."""

    def __init__(self, url, job, attempt, token, api_token):
        self.url, self.job, self.attempt = url, job, attempt
        self.token, self.api_token = token, api_token

    def send(self, kind, tries=1, **data):
        if not self.url:
            return
        data.update(job=self.job, attempt=self.attempt, token=self.token)
        event = {"specversion": "1.0", "type": kind, "source": f"//{self.job}/{self.attempt}", "id": str(uuid.uuid4()), "data": data}
        request = urllib.request.Request(f"{self.url.rstrip('/')}/v1/events", data=json.dumps(event).encode(), method="POST")
        request.add_header("content-type", "application/json")
        if self.api_token:
            request.add_header("authorization", f"Bearer {self.api_token}")
        for number in range(tries):
            pause = min(2.0**number, LONGEST_PAUSE_S)
            try:
                with urllib.request.urlopen(request, timeout=40):
                    return
            except urllib.error.HTTPError as error:
                print(f"{kind}: {error.code}: {error.read(2000).decode(errors='replace')}", file=sys.stderr)
                if error.code not in (429, 503):
                    return
                after = error.headers.get("retry-after", "")
                pause = float(after) if after.isdigit() else pause
            except OSError as error:
                print(f"{kind}: {error}", file=sys.stderr)
            if number + 1 < tries:
                time.sleep(min(pause, LONGEST_PAUSE_S))


def work(args, run, reports, stopping, resume_s):
    state, done_s = run.resume()
    state = state or {"step": 0, "model": ""}
    if done_s < resume_s:
        print(f"the controller knows of {resume_s} s, and what is there and whole has {done_s} s", file=sys.stderr)
    print(f"begins at step {state['step']} after {done_s:.3f} s", flush=True)
    saved_s = done_s

    def save():
        name = run.save(state, done_s)
        print(f"saved {name} at step {state['step']} after {done_s:.3f} s", flush=True)
        reports.send("run.checkpointed", progress=f"{int(done_s * 1000)}ms", manifest=name)
        return done_s

    while done_s < args.work_s and not stopping:
        time.sleep(args.step_s)
        state["step"] += 1
        state["model"] = hashlib.sha256(f"{state['model']}{state['step']}".encode()).hexdigest()
        # From the number of steps: sums of floats drift.
        done_s = round(state["step"] * args.step_s, 6)
        if done_s - saved_s >= args.every_s:
            saved_s = save()
    # The end, or SIGTERM, whenever it came.
    if done_s > saved_s:
        save()
    if done_s < args.work_s:
        print("stopped", flush=True)
        return 143
    print(f"done {state['step']} {state['model']}", flush=True)
    reports.send("run.completed", tries=MOST_TRIES)
    return 0


def run_token(env):
    """The attempt's token: from the environment, or from the file that a cluster mounts."""
    path = env.get("FOREBAY_TOKEN_FILE")
    return Path(path).read_text(encoding="ascii").strip() if path else env.get("FOREBAY_TOKEN", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--work-s", type=float, default=60.0, help="seconds of work in all")
    parser.add_argument("--every-s", type=float, default=5.0, help="seconds of work between checkpoints")
    parser.add_argument("--step-s", type=float, default=0.5, help="seconds of work of one step")
    args = parser.parse_args()
    env = os.environ
    uri = env.get("FOREBAY_CHECKPOINT_URI", "")
    if not uri:
        return bad("FOREBAY_CHECKPOINT_URI is not set; set it to s3://bucket/prefix/ or file:///path/")
    job, attempt = env.get("FOREBAY_JOB", "job-0"), int(env.get("FOREBAY_ATTEMPT", "1"))
    token_file = env.get("FOREBAY_API_TOKEN_FILE")
    api_token = Path(token_file).read_text(encoding="ascii").strip() if token_file else ""
    reports = Reports(env.get("FOREBAY_URL", ""), job, attempt, run_token(env), api_token)
    stopping = []

    def stop(_signal, _frame):
        if not stopping:
            stopping.append(True)
            # Past the grace the run is killed in any case: better to end here than to look as if it saved.
            signal.setitimer(signal.ITIMER_REAL, float(env.get("FOREBAY_GRACE_S", "90")))

    signal.signal(signal.SIGTERM, stop)
    try:
        return work(args, Run(open_store(uri), job, attempt), reports, stopping, float(env.get("FOREBAY_RESUME_S", "0")))
    except Exception as error:
        print(f"failed: {error}", file=sys.stderr)
        reports.send("run.failed", tries=MOST_TRIES, exitCode=1)
        return 1


if __name__ == "__main__":
    sys.exit(main())
