package helmcheck

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Helm tells of each link that it follows
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write the golden manifests anew")

const chartDir = "../../deploy/helm/agentstream"

// TestChart renders the chart with each values file: Helm's lint says nothing, the manifests are the golden ones,
// and each is an object of its kind without an unknown field.
func TestChart(t *testing.T) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(chartDir + "/ci/*-values.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d values files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		t.Run(name, func(t *testing.T) {
			values, err := chartutil.ReadValuesFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range lint.AllWithKubeVersion(chartDir, values, "agents", nil).Messages {
				if m.Severity > support.InfoSev {
					t.Error(m)
				}
			}
			manifests := render(t, c, values)
			checkObjects(t, manifests)
			golden(t, filepath.Join("testdata", name+".yaml"), manifests)
		})
	}
}

// render returns the chart's manifests as helm template prints them, in the order of the templates' names.
func render(t *testing.T, c *chart.Chart, values chartutil.Values) []byte {
	t.Helper()
	manifests, err := template(c, values)
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

func template(c *chart.Chart, values chartutil.Values) ([]byte, error) {
	options := chartutil.ReleaseOptions{Name: "agentstream", Namespace: "agents", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		docs := releaseutil.SplitManifests(files[name])
		keys := make([]string, 0, len(docs))
		for key := range docs {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, func(a, b string) int { return number(a) - number(b) })
		for _, key := range keys {
			if strings.HasPrefix(name, "agentstream/templates/_") || strings.TrimSpace(docs[key]) == "" {
				continue
			}
			fmt.Fprintf(&out, "---\n# %s\n%s\n", name, strings.TrimSpace(docs[key]))
		}
	}
	return out.Bytes(), nil
}

// number is the n of "manifest-n".
func number(key string) (n int) {
	_, _ = fmt.Sscanf(key, "manifest-%d", &n)
	return n
}

// kinds has the type of each kind that the chart may render.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                            func() any { return new(apps.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler":        func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"batch/v1 Job":                                  func() any { return new(batch.Job) },
	"v1 ConfigMap":                                  func() any { return new(core.ConfigMap) },
	"v1 Secret":                                     func() any { return new(core.Secret) },
	"v1 Service":                                    func() any { return new(core.Service) },
	"networking.k8s.io/v1 Ingress":                  func() any { return new(networking.Ingress) },
	"networking.k8s.io/v1 NetworkPolicy":            func() any { return new(networking.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":                 func() any { return new(policy.PodDisruptionBudget) },
	"gateway.networking.k8s.io/v1 HTTPRoute":        func() any { return new(gateway.HTTPRoute) },
	"monitoring.coreos.com/v1 PrometheusRule":       func() any { return new(monitoring.PrometheusRule) },
	"monitoring.coreos.com/v1 ServiceMonitor":       func() any { return new(monitoring.ServiceMonitor) },
	"kustomize.config.k8s.io/v1beta1 Kustomization": nil, // kustomize's own: not an object of a cluster
}

// checkObjects decodes every document strictly: an unknown field, a field of a wrong type or a key that is there
// twice is an error.
func checkObjects(t *testing.T, manifests []byte) {
	t.Helper()
	for _, err := range decode(manifests) {
		t.Error(err)
	}
}

func decode(manifests []byte) (errs []error) {
	seen := map[string]bool{}
	for doc := range strings.SplitSeq(string(manifests), "\n---\n") {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			errs = append(errs, err)
			continue
		}
		kind := head.APIVersion + " " + head.Kind
		make, known := kinds[kind]
		if id := kind + " " + head.Metadata.Name; seen[id] {
			errs = append(errs, errors.New(id+" is there twice"))
		} else {
			seen[id] = true
		}
		if !known {
			errs = append(errs, errors.New("the kind "+kind+" is not known"))
		} else if make != nil {
			if err := yaml.UnmarshalStrict([]byte(doc), make()); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", kind, head.Metadata.Name, err))
			}
		}
	}
	return errs
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs: go test -C tools/helmcheck . -update, and read the diff (%v)", path, err)
	}
}

// TestKustomizeBase holds the base to the same types.
func TestKustomizeBase(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/base/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checkObjects(t, text)
	}
}

// TestMistakesAreRefused: what a check is for, it finds.
func TestMistakesAreRefused(t *testing.T) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []chartutil.Values{
		{"egde": map[string]any{}},
		{"edge": map[string]any{"replica": 3}},
		{"edge": map[string]any{"drainSeconds": "15s"}},
		{"natsSync": "allways"},
		{"ingress": map[string]any{"enabled": true}},
		{"gateway": map[string]any{"enabled": true}},
		{"worker": map[string]any{"args": "--models=x"}},
	} {
		if _, err := template(c, values); err == nil {
			t.Errorf("%v is not refused", values)
		}
	}
	for _, doc := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: []}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: A, type: B}",
		"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: two}",
	} {
		if len(decode([]byte(doc))) == 0 {
			t.Errorf("%q is not refused", doc)
		}
	}
}

// TestDigest writes and compares the digest of what the goldens were made of, for tests that do not have Helm.
func TestDigest(t *testing.T) {
	digest := sha256.New()
	err := fs.WalkDir(os.DirFS(chartDir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "files/") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(chartDir, path))
		fmt.Fprintf(digest, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/chart.sha256", fmt.Appendf(nil, "%x\n", digest.Sum(nil)))
}

// TestFiles: the chart's rules and dashboards are those of deploy, byte for byte.
func TestFiles(t *testing.T) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]any{"enabled": true}
	manifests := render(t, c, chartutil.Values{"monitoring": map[string]any{"dashboards": on, "prometheusRule": on}})
	checkObjects(t, manifests)
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	rules, dashboards := new(monitoring.PrometheusRule), new(core.ConfigMap)
	for doc := range strings.SplitSeq(string(manifests), "\n---\n") {
		if strings.Contains(doc, "\nkind: PrometheusRule\n") {
			err = errors.Join(err, yaml.Unmarshal([]byte(doc), rules))
		}
		if strings.Contains(doc, "\nkind: ConfigMap\n") {
			err = errors.Join(err, yaml.Unmarshal([]byte(doc), dashboards))
		}
	}
	alerts, err2 := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil || err2 != nil || len(rules.Spec.Groups) != 1 {
		t.Fatalf("%d groups of rules, %v, %v", len(rules.Spec.Groups), err, err2)
	}
	if got, want := len(rules.Spec.Groups[0].Rules), bytes.Count(alerts, []byte("- alert:")); got != want {
		t.Errorf("%d alarms in the PrometheusRule, want %d", got, want)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		got := dashboards.Data[filepath.Base(file)]
		if err != nil || strings.TrimSpace(got) != strings.TrimSpace(string(text)) {
			t.Errorf("%s is not in the ConfigMap as it is: %v", file, err)
		}
	}
}
