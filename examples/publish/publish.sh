#!/usr/bin/env bash
# Publishes one job to Forebay with curl, and waits until it is over.
#
#   publish.sh SUBJECT QUEUE GPUS [RUN_SECONDS]
#
# FOREBAY_SERVER      where it is; default http://127.0.0.1:8080
# FOREBAY_TOKEN_FILE  file with the token; default: none is sent
# RUN_SECONDS         how long the job runs in the simulated cloud; nothing else reads it
#
# Running it again with the same arguments finds the same job: it is known by its subject.
# Exit codes: 0 completed, 2 not taken, 3 failed or rejected, 4 cancelled, 6 no answer.
set -euo pipefail

if [ $# -lt 3 ]; then
  echo "usage: publish.sh SUBJECT QUEUE GPUS [RUN_SECONDS]" >&2
  exit 2
fi
subject=$1 queue=$2 gpus=$3 seconds=${4:-}
server=${FOREBAY_SERVER:-http://127.0.0.1:8080}

# Text as JSON text, and as a segment of an address. Names here are plain; publish.py takes any.
case $subject$queue in
  *[!A-Za-z0-9._/-]*) echo "publish.sh takes letters, digits and . _ / - in names; use publish.py" >&2; exit 2 ;;
esac
segment=${subject//\//%2F}

simulation=
[ -z "$seconds" ] || simulation=",\"simulation\":{\"durationS\":$seconds}"
event="{\"type\":\"job.submitted\",\"subject\":\"$subject\",\"data\":{\"queue\":\"$queue\",\"gang\":{\"each\":{\"gpus\":$gpus}}$simulation}}"

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# ask METHOD PATH [BODY]: the status is printed, the body is in $answer. The token goes through a pipe and not through an
# argument, which everybody on the machine could read. --retry waits as long as Retry-After says; connections that are
# refused or lost are tried again too, which is safe: the same job sent twice is one job.
ask() {
  local body=()
  [ $# -lt 3 ] || body=(--header 'content-type: application/json' --data-binary "$3")
  { [ -z "${FOREBAY_TOKEN_FILE:-}" ] || printf 'header = "authorization: Bearer %s"\n' "$(cat "$FOREBAY_TOKEN_FILE")"; } |
    curl --config - --silent --show-error --request "$1" --output "$answer" --write-out '%{http_code}' \
      --retry 8 --retry-connrefused --retry-max-time 180 --max-time 90 ${body[@]+"${body[@]}"} "$server$2"
}

status=$(ask POST /v1/events "$event") || { echo "no answer from $server" >&2; exit 6; }
if [ "$status" != 202 ]; then
  echo "not taken ($status): $(cat "$answer")" >&2
  exit 2
fi

while :; do
  status=$(ask GET "/v1/jobs/$segment?waitFor=terminal&timeout=30s") || { echo "no answer from $server" >&2; exit 6; }
  if [ "$status" != 200 ]; then
    echo "not found ($status): $(cat "$answer")" >&2
    exit 2
  fi
  # The answer is one line of compact JSON, and "phase" stands in it once outside of texts.
  phase=$(sed -n 's/.*"phase":"\([a-z-]*\)".*/\1/p' "$answer")
  case $phase in
    completed) echo "$subject completed"; exit 0 ;;
    failed | rejected) echo "$subject $phase" >&2; exit 3 ;;
    cancelled) echo "$subject cancelled" >&2; exit 4 ;;
  esac
done
