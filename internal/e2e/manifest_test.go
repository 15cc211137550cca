package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oasdiff/yaml"
)

// manifest is what the tests read of an object that the chart renders, by themselves.
type manifest struct {
	Kind     string
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		Replicas    *int
		MinReplicas int
		Template    struct{ Spec manifestPod }
	}
}

type manifestPod struct {
	TerminationGracePeriodSeconds int
	Containers                    []manifestContainer
}

type manifestContainer struct {
	Name           string
	Args           []string
	Env            []manifestVariable
	ReadinessProbe manifestProbe
}

type manifestVariable struct {
	Name, Value string
	ValueFrom   *struct {
		SecretKeyRef struct{ Name, Key string }
	}
}

type manifestProbe struct {
	PeriodSeconds, TimeoutSeconds, FailureThreshold int
}

// readManifests returns the objects that the chart renders with the values file of that name.
func readManifests(t testing.TB, values string) (out []manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../tools/helmcheck/testdata", values+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var m manifest
		object, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = json.Unmarshal(object, &m)
		}
		if err != nil && strings.Contains(doc, "containers:") {
			t.Fatalf("%s: %v", values, err)
		}
		out = append(out, m)
	}
	return out
}

// podOf returns the pod of the object of that name.
func podOf(t testing.TB, all []manifest, name string) manifestPod {
	t.Helper()
	i := slices.IndexFunc(all, func(m manifest) bool {
		return m.Metadata.Name == name && len(m.Spec.Template.Spec.Containers) == 1
	})
	if i < 0 {
		t.Fatalf("the chart renders no %s", name)
	}
	return all[i].Spec.Template.Spec
}

// argument returns the duration that a container's argument gives a flag.
func (c manifestContainer) argument(t testing.TB, flag string) time.Duration {
	t.Helper()
	for _, arg := range c.Args {
		if text, ok := strings.CutPrefix(arg, flag+"="); ok {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatalf("%s has no %s", c.Name, flag)
	return 0
}
