#!/bin/sh
#
# The Job of docs/launching.md: YAML of the kinds that it names, with as many pods as it has workers,
# and the variables of a job that core/launch/environment.c reads. Run from the top of the tree.
. tests/lib/verdict.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -n '/^```yaml$/,/^```$/p' docs/launching.md | grep -v '^```' >"$work/job.yaml"
verdict "docs/launching.md's Job" "$(python3 - "$work/job.yaml" core/launch/environment.h 2>&1 <<'PYTHON'
import sys, yaml
service, job = yaml.safe_load_all(open(sys.argv[1]))
variables = open(sys.argv[2]).read()
spec, pod = job["spec"], job["spec"]["template"]["spec"]
settings = dict(word.split("=") for word in pod["containers"][0]["args"] if "=" in word)
given = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
assert (service["kind"], job["kind"], spec["completionMode"]) == ("Service", "Job", "Indexed")
assert int(settings["run.workers"]) == spec["completions"] == spec["parallelism"], settings
assert pod["subdomain"] == service["metadata"]["name"], pod
assert given["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}", given
assert all(name in variables for name in given), given
assert "run.port" in settings or "MASTER_PORT" in given, settings
PYTHON
)"
end
