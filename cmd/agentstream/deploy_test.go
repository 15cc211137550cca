package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oasdiff/yaml"
)

// workload is what a manifest says of processes.
type workload struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Selector struct{ MatchLabels map[string]string }
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	TerminationGracePeriodSeconds int
	Containers                    []container
	Volumes                       []struct{ Name string }
}

type container struct {
	Args  []string
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name          string
		ContainerPort int
	}
	LivenessProbe, ReadinessProbe struct {
		HTTPGet struct{ Path, Port string } `json:"httpGet"`
	}
	VolumeMounts []struct{ Name, MountPath string }
}

// TestKubernetes gives the program what the manifests of the base and of the rendered chart give it: every flag
// and variable is one of its, ports and probes are where it serves, a pod has the time that its drain takes, and
// files of secrets are below a mount.
func TestKubernetes(t *testing.T) {
	paths, err := filepath.Glob("../../tools/helmcheck/testdata/*.yaml")
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	for _, path := range append(paths, "../../deploy/kubernetes/base/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			files, err := filepath.Glob(path)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, file := range files {
				for _, w := range workloads(t, file) {
					found[w.Metadata.Name] = true
					checkWorkload(t, &w)
				}
			}
			if !found["agentstream-edge"] || !found["agentstream-persist"] {
				t.Errorf("the workloads are %v", found)
			}
		})
	}
}

// workloads returns what has containers of the documents of a file.
func workloads(t *testing.T, path string) (out []workload) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var w workload
		object, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = json.Unmarshal(object, &w)
		}
		if err == nil && len(w.Spec.Template.Spec.Containers) > 0 {
			out = append(out, w)
		} else if err != nil && strings.Contains(doc, "containers:") {
			t.Errorf("%s: %v", path, err)
		}
	}
	return out
}

// TestChartIsRendered: the manifests that TestKubernetes reads are those of the chart as it is.
func TestChartIsRendered(t *testing.T) {
	digest := sha256.New()
	chart := os.DirFS("../../deploy/helm/agentstream")
	err := fs.WalkDir(chart, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "files/") {
			return err
		}
		text, err := fs.ReadFile(chart, path)
		fmt.Fprintf(digest, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../tools/helmcheck/testdata/chart.sha256")
	got := fmt.Sprintf("%x\n", digest.Sum(nil))
	if err != nil || got != string(want) {
		t.Errorf("the chart has changed (%v): make helm ARGS=-update, and read the diff", err)
	}
}

func checkWorkload(t *testing.T, w *workload) {
	t.Helper()
	name, spec := w.Metadata.Name, &w.Spec.Template.Spec
	for label, value := range w.Spec.Selector.MatchLabels {
		if w.Spec.Template.Metadata.Labels[label] != value {
			t.Errorf("%s selects %s=%s, which its pods have not", name, label, value)
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		cli := parseDeployed(t, name, c.Args, c.Env)
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(spec.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts %s, which is no volume", name, m.Name)
			}
		}
		for _, e := range c.Env {
			if strings.HasSuffix(e.Name, "_FILE") && filepath.Dir(e.Value) != c.VolumeMounts[0].MountPath {
				t.Errorf("%s: %s is not below the mount", name, e.Value)
			}
		}
		drain := cli.Edge.DrainDelay + cli.Edge.Drain // of other roles there is none
		if c.Args[0] == "edge" && time.Duration(spec.TerminationGracePeriodSeconds)*time.Second < drain+10*time.Second+
			drainSpare {
			t.Errorf("%s: %d s of grace, the drain takes %v and 10 s", name, spec.TerminationGracePeriodSeconds, drain)
		}
		checkPorts(t, name, c)
	}
}

// drainSpare is for what is left after a drain: connections, the end of the process.
const drainSpare = 2 * time.Second

// checkPorts compares the ports with the addresses that the process serves.
func checkPorts(t *testing.T, name string, c *container) {
	t.Helper()
	flags := map[string]string{"clients": "--listen=:", "admin": "--admin-listen=:", "health": "--health-listen=:"}
	for _, p := range c.Ports {
		if want := flags[p.Name] + strconv.Itoa(p.ContainerPort); !slices.Contains(c.Args, want) {
			t.Errorf("%s: port %s is %d, the arguments are %v", name, p.Name, p.ContainerPort, c.Args)
		}
	}
	if c.Args[0] == "migrate" {
		return
	}
	live, ready := c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet
	if live.Path != "/healthz" || ready.Path != "/readyz" || live.Port != "health" || ready.Port != "health" {
		t.Errorf("%s: probes ask %v and %v", name, live, ready)
	}
}

// parseDeployed reads a command line and variables as the program does.
func parseDeployed(t *testing.T, name string, args []string, env []struct{ Name, Value string }) *CLI {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars, names := map[string]string{}, []string(nil)
	for _, e := range env {
		if vars[e.Name] = e.Value; strings.HasSuffix(e.Name, "_FILE") {
			vars[e.Name] = secret
		}
		names = append(names, e.Name+"=")
	}
	cli := new(CLI)
	parser, err := newParser(cli, &settings{env: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }})
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if unknown := unknownVariables(parser.Model.Node, names); len(unknown) > 0 {
		t.Errorf("%s: no such variables: %v", name, unknown)
	}
	return cli
}

// TestSystemdUnits gives the program the command lines of the units.
func TestSystemdUnits(t *testing.T) {
	for _, role := range []string{"edge", "persist"} {
		text, err := os.ReadFile("../../deploy/systemd/agentstream-" + role + ".service")
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/agentstream (.*)$`).FindSubmatch(text)
		stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(text)
		if line == nil || stop == nil {
			t.Fatalf("%s: no command line, or no time to stop", role)
		}
		cli := parseDeployed(t, role, strings.Fields(string(line[1])), nil)
		grace, _ := strconv.Atoi(string(stop[1]))
		if drain := cli.Edge.DrainDelay + cli.Edge.Drain; role == "edge" &&
			time.Duration(grace)*time.Second < drain+10*time.Second+drainSpare {
			t.Errorf("%s: %d s to stop, the drain takes %v and 10 s", role, grace, drain)
		}
	}
}
