#!/usr/bin/env python3
"""Makes the queues and the bucket that Forebay is tried with, where they are not there yet. Run it as often as you like.

It speaks to $AWS_ENDPOINT_URL (LocalStack, or anything else that speaks SQS and S3 at one address), as
$AWS_ACCESS_KEY_ID with $AWS_SECRET_ACCESS_KEY (`test` both) in $AWS_REGION (`us-east-1`). Python's own library is enough.
Never: a change to what is there with other settings; that is an error, and says so.
"""

import datetime
import hashlib
import hmac
import json
import os
import sys
import urllib.error
import urllib.request

ENDPOINT = os.environ.get("AWS_ENDPOINT_URL", "").rstrip("/")
KEY_ID = os.environ.get("AWS_ACCESS_KEY_ID", "test")
SECRET = os.environ.get("AWS_SECRET_ACCESS_KEY", "test")
REGION = os.environ.get("AWS_REGION", "us-east-1")

# Seconds for one call to a server that is near.
LIMIT = 10

# Each comes as a standard queue and as a FIFO one.
QUEUES = ("jobs", "jobs-status", "jobs-rejected")
DEAD_LETTERS = "jobs-dead"
BUCKET = "checkpoints"

# A message that Forebay cannot read goes to jobs-rejected, with the reason. The dead-letter queue is for what nobody takes:
# each restart of Forebay may receive a message once more, so it takes many receipts to call one dead.
RECEIPTS = 100
# 14 days, SQS's most: a pipeline may be down over a holiday.
RETENTION = 14 * 24 * 3600


def main():
    if not ENDPOINT:
        sys.exit("AWS_ENDPOINT_URL is not set; set it to the endpoint, such as http://127.0.0.1:4566")
    for suffix, fifo in (("", {}), (".fifo", {"FifoQueue": "true"})):
        keep = {"MessageRetentionPeriod": str(RETENTION), **fifo}
        dead = queue(DEAD_LETTERS + suffix, keep)
        for name in QUEUES:
            settings = dict(keep)
            if name == "jobs":
                # A job waits as long as an answer to an empty receipt may be held back: 20 s is SQS's most.
                settings["ReceiveMessageWaitTimeSeconds"] = "20"
                settings["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": RECEIPTS})
            print("queue", queue(name + suffix, settings))
        print("queue", dead)
    bucket(BUCKET)
    print("bucket", f"s3://{BUCKET}")


def queue(name, settings):
    """The queue's URL. SQS answers the same for a queue that is there with the same settings."""
    return sqs("CreateQueue", {"QueueName": name, "Attributes": settings})["QueueUrl"]


def arn(url):
    return sqs("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["QueueArn"]})["Attributes"]["QueueArn"]


def bucket(name):
    # Every region but the first has to be named.
    place = "" if REGION == "us-east-1" else f"<LocationConstraint>{REGION}</LocationConstraint>"
    body = f"<CreateBucketConfiguration>{place}</CreateBucketConfiguration>".encode() if place else b""
    call("s3", "PUT", f"/{name}", body, {}, accept=("BucketAlreadyOwnedByYou",))


def sqs(action, body):
    headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}"}
    return json.loads(call("sqs", "POST", "/", json.dumps(body).encode(), headers))


def call(service, method, path, body, headers, accept=()):
    """One signed call, and its answer. An error with one of the `accept`ed codes is no error."""
    request = urllib.request.Request(ENDPOINT + path, data=body, method=method)
    for name, value in signed(service, method, path, body, headers).items():
        request.add_header(name, value)
    # A proxy is not asked for what is near.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=LIMIT) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        if any(code in text for code in accept):
            return b""
        sys.exit(f"{method} {ENDPOINT}{path} ({service}): {error.code}: {text.strip()}")
    except OSError as error:
        sys.exit(f"{ENDPOINT} does not answer: {error}; start it with `cargo xtask up localstack`")


def signed(service, method, path, body, headers):
    """The headers with AWS's signature, version 4 (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html)."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    host = ENDPOINT.split("://", 1)[-1]
    headers = {**headers, "host": host, "x-amz-date": now, "x-amz-content-sha256": digest}
    names = ";".join(sorted(headers))
    canonical = "\n".join([method, path, "", *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest])
    scope = f"{now[:8]}/{REGION}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in (now[:8], REGION, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": credential}


if __name__ == "__main__":
    main()
