"""scripts/kubevirt-changes, on a repository of two commits."""

import os
import subprocess
import tempfile
import unittest

SCRIPT = os.path.realpath(f"{__file__}/../../../scripts/kubevirt-changes")
PROTO = "pkg/handler-launcher-com/cmd/v1/cmd.proto"
TYPES = "staging/src/kubevirt.io/api/core/v1/schema.go"

OLD = {
    "cmd/virt-launcher/virt-launcher.go": """
	uid := pflag.String("uid", "", "UID of the VM")
	pflag.BoolVar(&old, "old", false, "gone")
	timeout := pflag.Duration("timeout", 5*time.Second, "how long")
""",
    "pkg/virt-controller/services/template.go": """
	command := []string{"--uid", uid, "--old"}
	mount("/var/run/kubevirt/sockets")
""",
    PROTO: """
service Cmd {
  rpc Ping(EmptyRequest) returns (Response) {}
}

message EmptyRequest {}

message Options {
  bool a = 1; // a comment = 9
  string b = 2;
}
""",
    TYPES: """
type VirtualMachineInstance struct {
	metav1.TypeMeta `json:",inline"`
	// A comment
	Spec Spec `json:"spec"`
}

type Spec struct {
	Devices []Device `json:"devices,omitempty"`
}

type Device struct {
	Named `json:",inline"`
	Size  int `json:"size"`
	Old   string
}

type Named struct {
	Name string `json:"name"`
}

type NotSent struct {
	A string `json:"a"`
}

const BusOne Bus = "one"
""",
}
NEW = {
    "cmd/virt-launcher/virt-launcher.go": """
	uid := pflag.String("uid", "", "another text")
	pflag.BoolVar(&new, "new", false, "new")
	timeout := pflag.Duration("timeout", 9*time.Second, "how long")
""",
    "cmd/virt-launcher/virt-launcher_test.go": 'pflag.Bool("only-in-a-test", false, "")',
    "pkg/virt-controller/services/template.go": """
	command := []string{"--uid", uid, "--new"}
	mount("/var/run/kubevirt/new")
""",
    PROTO: OLD[PROTO].replace("(EmptyRequest)", "(PingRequest)").replace("string b = 2;", "string b = 3;"),
    TYPES: OLD[TYPES]
    .replace('	Named `json:",inline"`\n', '	Name string `json:"name,omitempty"`\n')
    .replace("Size  int", "Size *int")
    .replace("	Old   string\n", '	UnknownToUs string `json:"unknownToUs"`\n')
    .replace('A string `json:"a"`', 'B string `json:"b"`')
    .replace('"one"', '"two"'),
}
EXPECTED = """Flags of virt-launcher

    + --new  Bool, false
    - --old  Bool, false
    ~ --timeout  Duration, 5*time.Second  ->  Duration, 9*time.Second

Flags, paths and variables that the pod is made of

    + --new
    - --old
    + /var/run/kubevirt/new
    - /var/run/kubevirt/sockets

Protos

    ~ {proto}: Cmd.Ping  (EmptyRequest) returns (Response)  ->  (PingRequest) returns (Response)
    ~ {proto}: Options.b  string = 2  ->  string = 3

VMI and answers about the guest (staging/src/kubevirt.io/api/core/v1)

    - Device.Old  string
    ~*Device.size  int  ->  *int
    + Device.unknownToUs  string

Names and values (staging/src/kubevirt.io/api/core/v1)

    ~ BusOne  one  ->  two

Changed files, by lines

    +3 -3  cmd/virt-launcher/virt-launcher.go

"""


def commit(folder, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
        with open(f"{folder}/{path}", "w") as f:
            f.write(text)
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "files")


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True)


class Changes(unittest.TestCase):
    maxDiff = None

    def test_changes_between_two_commits(self):
        with tempfile.TemporaryDirectory() as folder:
            git(folder, "init", "--quiet")
            commit(folder, OLD)
            git(folder, "tag", "old")
            commit(folder, NEW)
            done = subprocess.run(
                [SCRIPT, f"{folder}/.git", "old", "HEAD"], capture_output=True, text=True, check=True
            )
            self.assertEqual(done.stdout, EXPECTED.format(proto=PROTO))
            wrong = subprocess.run([SCRIPT, folder, "old", "nowhere"], capture_output=True, text=True)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("kubevirt-changes: git ls-tree", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
