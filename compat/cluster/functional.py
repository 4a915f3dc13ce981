"""KubeVirt's own functional tests in the cluster: those with the label "conformance"."""

import copy
import json
import os
import re
import sys

from cluster import build, kubevirt
from cluster.cluster import AVAILABLE_TIMEOUT, say
from kit.wait import until

# Without what needs CDI, IPv6, a network outside of the cluster, names and addresses of Services
# (there is neither DNS nor kube-proxy), or a CNI plugin that enforces NetworkPolicies.
LABELS = "conformance && !RequiresOutsideConnectivity && !IPv6 && !storage-req && !RequiresBlockStorage"
SKIPPED = "test_id:1514|test_id:3189|IPv6|Headless service|service matching the vmi"
TEST_ID = re.compile(r"\[test_id:\w+\]")
PASSED, NOT_RUN = "passed", "not run"


def run(cluster, tests, config, focus, guest):
    """`tests`: the program, built by `go test -c -tags selinux ./tests`; `config`: tests/default-config.json of the same
    source; `focus`: a pattern of the tests' full texts, or None."""
    name = only_launcher(cluster.folder)
    builder = build.Builder(cluster.folder, None)
    for image in builder.disks_of_tests(guest):
        for node in cluster.nodes.values():
            builder.load(node, image)
    artifacts = cluster.folder.make(f"results/functional/{name}")
    say("KubeVirt's settings for its tests")
    change_settings(cluster, settings())
    try:
        status = cluster.control_plane.call(
            command(cluster.folder, tests, config, artifacts, focus),
            env={**os.environ, "REPORTER_MAX_FAILS": "-1"},
        )
    finally:
        change_settings(cluster, kubevirt.SETTINGS)
    return status


def only_launcher(folder):
    names = set(json.loads(folder.read("launchers.json") or "{}").values())
    if len(names) != 1:
        sys.exit("compat/run-cluster: these tests take one launcher on both nodes: up with one --launcher")
    return names.pop()


def settings():
    """A test that leaves its network to the cluster needs no dummy link so, and no test wants an eviction strategy."""
    changed = copy.deepcopy(kubevirt.SETTINGS)
    configuration = changed["spec"]["configuration"]
    configuration["network"] = {"defaultNetworkInterface": "masquerade"}
    del configuration["evictionStrategy"]
    return changed


def change_settings(cluster, wanted):
    cluster.apply(json.dumps(wanted))
    until("KubeVirt Available", cluster.is_available, AVAILABLE_TIMEOUT, 2)


def command(folder, tests, config, artifacts, focus):
    return [
        tests,
        f"-kubeconfig={folder / 'pki/admin.kubeconfig'}",
        f"-config={config}",
        f"-container-prefix={kubevirt.image('').rpartition('/')[0]}",
        f"-container-tag={kubevirt.VERSION}",
        f"-installed-namespace={kubevirt.NAMESPACE}",
        # A Service that is there: the tests want the address of some name server.
        "-dns-service-name=kubernetes",
        "-dns-service-namespace=default",
        f"-kubectl-path={folder / 'bin/kubectl'}",
        "-skip-dual-stack-test",
        f"-artifacts={artifacts}",
        f"-junit-output={artifacts}/junit.xml",
        f"--ginkgo.label-filter={LABELS}",
        f"--ginkgo.skip={SKIPPED}",
        *([f"--ginkgo.focus={focus}"] if focus else []),
        "--ginkgo.timeout=12h",
        "--ginkgo.seed=1",
        "--ginkgo.v",
        "--ginkgo.no-color",
        f"--ginkgo.json-report={artifacts}/report.json",
    ]


def table(folder):
    """Lines of Markdown: each test that ran with any launcher, and how it ended with each."""
    kept = folder.make("results/functional")
    names = sorted(name for name in os.listdir(kept) if os.path.exists(f"{kept}/{name}/report.json"))
    results = {name: results_of(f"{kept}/{name}/report.json") for name in names}
    yield f"| Test | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for test in sorted({test for each in results.values() for test in each}):
        cells = [results[name].get(test, NOT_RUN) for name in names]
        yield f"| {test} | {' | '.join(cells)} |"


def results_of(file):
    """Test -> "passed", or its state; a test that was left out is not there."""
    with open(file) as f:
        specs = [spec for suite in json.load(f) for spec in suite["SpecReports"]]
    return {
        title(spec): spec["State"]
        for spec in specs
        if spec["LeafNodeType"] == "It" and spec["State"] not in ("skipped", "pending")
    }


def title(spec):
    """The test's identifiers and the text of its last part; without identifiers also what the test is in."""
    texts = [*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]
    ids = [each.strip("[]").removeprefix("test_id:") for text in texts for each in TEST_ID.findall(text)]
    shown = texts[-1:] if ids else texts[-2:]
    text = re.sub(r"\[[^\]]*\]", "", " ".join(shown)).strip().replace("|", "\\|")
    return " ".join([*ids, re.sub(" +", " ", text)])
