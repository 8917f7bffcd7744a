#!/usr/bin/env python3
"""An operator for Airflow: one task is one job of Forebay.

    train = ForebayJobOperator(
        task_id="train",
        data={"queue": "vision/batch", "gang": {"workers": 2, "each": {"gpus": 4}}},
        server="http://forebay:8080",
        token_file="/run/secrets/forebay",
    )

- The job's subject is made from dag_id, task_id and run_id (and the map index): a task that is retried, or a worker that
  died and came back, finds its job again and goes on waiting. It does not start a second one.
- A job that was over when the task is tried again runs again (`rerun`): that is what a retry of a task means.
- It follows the job's own stream of statuses and logs each one; a lost connection goes on after the last one it has.
- `on_kill` (the task is marked failed, or cleared) cancels the job.

Without Airflow a small stand-in of BaseOperator is used, so that this file runs alone:

    forebay_operator.py --task-id train --data '{"queue":"vision/batch","gang":{"each":{"gpus":1}}}'
"""

import argparse
import hashlib
import json
import logging
import os
import random
import re
import signal
import sys
import time
import urllib.error
import urllib.request
import uuid

try:
    from airflow.exceptions import AirflowException
    from airflow.models import BaseOperator
except ImportError:

    class AirflowException(Exception):
        """Stand-in: the task failed."""

    class BaseOperator:
        """Stand-in: as much of Airflow's as is used here."""

        def __init__(self, *, task_id, **_):
            self.task_id = task_id
            self.log = logging.getLogger("forebay")


# Losses in a row before it is given up: with pauses of 1 to 30 s, some ten minutes. A status that comes counts anew.
MOST_LOSSES = 24
LONGEST_PAUSE_S = 30.0
# The stream says something every 15 s, were it an empty line.
SILENCE_S = 60
# Subjects may have 512 bytes; what is longer gets a hash in its middle.
MOST_SUBJECT = 300


class NotTaken(AirflowException):
    """The server said no, and would again."""


class ForebayJobOperator(BaseOperator):
    """Submits a job, waits for its end, and cancels it when the task is killed."""

    template_fields = ("data", "server")

    def __init__(self, *, data, server="http://127.0.0.1:8080", token_file=None, **kwargs):
        super().__init__(**kwargs)
        self.data = data
        self.server = server
        self.token_file = token_file
        self.job = None

    def execute(self, context):
        """Runs the job to its end. Returns its id; raises where it did not complete."""
        subject = subject_of(context)
        self.job = self._submit(subject, rerun=False)
        if self._first_try(context) is False and self._phase() in ("failed", "cancelled", "rejected"):
            self.job = self._submit(subject, rerun=True)
        self.log.info("%s is %s", subject, self.job)
        end = self._follow()
        if end["type"] != "status.completed":
            reason = end["data"].get("reason") or {}
            raise AirflowException(f"{self.job} ({subject}): {end['type']}: {reason.get('text', 'no reason given')}")
        return self.job

    def on_kill(self):
        """The task is to end: so is its job."""
        if self.job is not None:
            try:
                self._ask("POST", f"/v1/jobs/{self.job}/cancel")
            except NotTaken as error:
                # It was over already.
                self.log.info("%s", error)

    @staticmethod
    def _first_try(context):
        return getattr(context.get("ti"), "try_number", 1) <= 1

    def _submit(self, subject, rerun):
        data = dict(self.data, rerun=True) if rerun else self.data
        event = {"type": "job.submitted", "subject": subject, "data": data}
        if rerun:
            # Asked again for want of an answer, this is the same rerun, also when it is over by then.
            event["id"] = uuid.uuid4().hex
        taken = self._ask("POST", "/v1/events", event)
        for warning in taken["accepted"][0].get("warnings", []):
            self.log.warning("%s", warning)
        return taken["accepted"][0]["job"]

    def _phase(self):
        return self._ask("GET", f"/v1/jobs/{self.job}")["phase"]

    def _follow(self):
        """The job's last status. A stream that breaks is taken up after the last status that came."""
        seq, losses = 0, 0
        while True:
            try:
                request = self._request("GET", f"/v1/jobs/{self.job}/events?after={seq}")
                with urllib.request.urlopen(request, timeout=SILENCE_S) as lines:
                    for line in lines:
                        if not line.strip():
                            continue
                        status = json.loads(line)
                        seq, losses = status["data"]["seq"], 0
                        self.log.info("%s %s", self.job, status["type"])
                        if status["data"]["terminal"]:
                            return status
                why, wait = "the stream ended early", None
            except urllib.error.HTTPError as error:
                why, wait = passing(error)
            except (OSError, ValueError) as error:
                why, wait = str(error), None
            losses += 1
            self._pause(why, wait, losses)

    def _ask(self, method, path, body=None):
        losses = 0
        while True:
            try:
                with urllib.request.urlopen(self._request(method, path, body), timeout=SILENCE_S) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                why, wait = passing(error)
            except (OSError, ValueError) as error:
                # Asking again is safe: the same job is known, and a cancellation says the same twice.
                why, wait = str(error), None
            losses += 1
            self._pause(why, wait, losses)

    def _request(self, method, path, body=None):
        headers = {"accept": "application/json"}
        data = None
        if body is not None:
            headers["content-type"] = "application/json"
            data = json.dumps(body).encode()
        elif method == "POST":
            data = b""
        if self.token_file is not None:
            with open(self.token_file, encoding="ascii") as file:
                headers["authorization"] = f"Bearer {file.read().strip()}"
        return urllib.request.Request(self.server.rstrip("/") + path, data=data, headers=headers, method=method)

    def _pause(self, why, wait, losses):
        if losses > MOST_LOSSES:
            raise AirflowException(f"given up after {losses} losses in a row: {why}")
        pause = min(max(wait or 0.0, 2.0 ** min(losses - 1, 8)), LONGEST_PAUSE_S) * random.uniform(1.0, 1.1)
        self.log.warning("%s; again in %.0f s", why, pause)
        time.sleep(pause)


def passing(error):
    """Why an answer is no answer yet, and how long to wait. One that stays a no raises."""
    try:
        told = json.load(error).get("error", {})
    except (ValueError, AttributeError):
        told = {}
    why = f"{error.code} {told.get('code', '')}: {told.get('message', error.reason)}: {told.get('remedy', '')}"
    if error.code not in (429, 502, 503, 504):
        raise NotTaken(why) from None
    after = error.headers.get("retry-after", "")
    return why, float(after) if after.isdigit() else None


def subject_of(context):
    """The job's name: the same for every try of one task in one run of one DAG."""
    ti = context.get("ti")
    parts = [context["dag"].dag_id, context["task"].task_id, context["run_id"]]
    index = getattr(ti, "map_index", -1)
    if index is not None and index >= 0:
        parts.append(str(index))
    subject = "/".join(re.sub(r"[\x00-\x1f\x7f]", "_", part) for part in parts)
    if len(subject.encode()) <= MOST_SUBJECT:
        return subject
    return f"{subject[:40]}...{hashlib.sha256(subject.encode()).hexdigest()}"


class _Named:
    """Stand-in for what Airflow hands to a task."""

    def __init__(self, **names):
        self.__dict__.update(names)


def main():
    parser = argparse.ArgumentParser(description="Runs one task of a DAG that is none, as Airflow would.")
    parser.add_argument("--server", default=os.environ.get("FOREBAY_SERVER", "http://127.0.0.1:8080"))
    parser.add_argument("--token-file")
    parser.add_argument("--dag-id", default="example")
    parser.add_argument("--task-id", required=True)
    parser.add_argument("--run-id", default="manual")
    parser.add_argument("--try-number", type=int, default=1)
    parser.add_argument("--data", required=True, type=json.loads, help="the job's data as JSON")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    task = ForebayJobOperator(
        task_id=args.task_id, data=args.data, server=args.server, token_file=args.token_file
    )

    def killed(*_):
        task.on_kill()
        sys.exit(130)

    signal.signal(signal.SIGTERM, killed)
    context = {
        "dag": _Named(dag_id=args.dag_id),
        "task": task,
        "run_id": args.run_id,
        "ti": _Named(try_number=args.try_number, map_index=-1),
    }
    try:
        print(task.execute(context))
    except AirflowException as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
