//go:build chart

package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// chartHost is what the production values file lets the Ingress serve.
const chartHost = "stream.example.com"

// chartProc is the pods of the rendered chart, with NATS, PostgreSQL and an nginx as the Ingress.
type chartProc struct {
	*topologyProc
	given   string // folder of the Secrets that are there before the chart
	ca      *testkit.Authority
	objects []manifest
}

// chartOutcome is what tools/topology says of a pod that has ended.
type chartOutcome struct {
	Service string
	Exit    int
	Killed  bool
	Took    float64 `json:"took_s"`
	Grace   float64 `json:"grace_s"`
	Probes  map[string]struct{ Passed, Failed int }
}

// TestChart starts the pods that the chart renders for production, as processes: Job first, each with its arguments,
// variables and probes. Through the Ingress the main job is done over HTTP/2, WebSocket and gRPC; the probes
// stay green; and every pod ends by itself within its grace. What differs from the manifests is that an address is one
// of the loopback interface, and that a mounted folder is another one. It waits for the times of production, so make
// chart runs it, and make test does not.
func TestChart(t *testing.T) {
	if _, err := exec.LookPath("/usr/sbin/nginx"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p := startChart(t)
	t.Logf("%d processes are ready after %s", len(p.of), time.Since(begun).Round(100*time.Millisecond))
	probed := time.After(12 * time.Second) // liveness is asked every 10 s
	p.sameAsChart()
	p.mainJob()
	<-probed
	open := p.leaveOpen()
	ending := time.Now()
	p.checkOutcomes(p.end())
	<-open
	t.Logf("everything has ended after %s", time.Since(ending).Round(100*time.Millisecond))
}

// startChart starts everything from the manifests that helmcheck holds to the chart.
func startChart(t *testing.T) *chartProc {
	t.Helper()
	p := &chartProc{topologyProc: newTopology(t), ca: testkit.NewAuthority(t), objects: readManifests(t, "production")}
	p.given = filepath.Join(p.dir, "given")
	p.giveSecrets()
	values := filepath.Join(p.dir, "nats-users.yaml")
	writeText(t, values, "config: {merge: {$include: users.conf}}\n")
	p.launch("-file", "../../docker-compose.yml", "-chart", "../../tools/helmcheck/testdata/production.yaml",
		"-given", p.given, "-nats-values", "../../deploy/helm/nats-values.yaml,"+values)
	return p
}

// giveSecrets makes the Secrets that docs/kubernetes.md asks for, and those of the values file.
func (p *chartProc) giveSecrets() {
	t := p.t
	t.Helper()
	natsURL := func(role string) string {
		url := p.secret("nats_url_" + role)
		return regexp.MustCompile(`nats-(\d)`).ReplaceAllStringFunc(url, func(host string) string {
			n, _ := strconv.Atoi(strings.TrimPrefix(host, "nats-"))
			return fmt.Sprintf("nats-%d.nats-headless", n-1)
		})
	}
	dsn := func(user, secret string) string {
		word := p.secret(secret)
		return fmt.Sprintf("postgres://%s:%s@postgres:5432/agentstream?sslmode=disable", user,
			word[strings.LastIndexByte(word, ':')+1:])
	}
	owner, reader := dsn("agentstream", "postgres_owner"), dsn("agentstream_reader", "postgres_reader")
	cert, key := p.ca.Issue(t, t.TempDir(), chartHost)
	for name, text := range map[string]string{
		"agentstream-edge/nats_url_edge": natsURL("edge"), "agentstream-edge/postgres_reader": reader,
		"agentstream-edge/auth_token": edgeToken, "agentstream-edge/share_secret": strings.Repeat("s", 40),
		"agentstream-persist/nats_url_persist": natsURL("persist"), "agentstream-persist/postgres_owner": owner,
		"agentstream-worker/nats_url_worker": natsURL("worker"), "agentstream-worker/postgres_reader": reader,
		"agentstream-migrate/nats_url_migrate": natsURL("migrate"), "agentstream-migrate/postgres_owner": owner,
		"models/openai": "sk-of-the-test", "nats-config/users.conf": p.natsUsers(),
		"stream-tls/tls.crt": readText(t, cert), "stream-tls/tls.key": readText(t, key),
	} {
		writeText(t, filepath.Join(p.given, name), text)
	}
}

// natsUsers are the users that the program prints, with the passwords of tools/secrets.
func (p *chartProc) natsUsers() string {
	p.t.Helper()
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := exec.Command(path, "migrate", "--nats-permissions").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	words := p.secret("nats_users")
	users := regexp.MustCompile(`\$NATS_[A-Z]+_PASSWORD`).ReplaceAllStringFunc(string(out), func(v string) string {
		if m := regexp.MustCompile(v[1:] + ` = (".*")`).FindStringSubmatch(words); m != nil {
			return m[1]
		}
		return strconv.Quote(rand.Text()) // of a role that is not here
	})
	return "authorization {\n" + users + "}\n"
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sameAsChart holds every process to its pod: as many as the chart wants, and each with its arguments, variables and
// files.
func (p *chartProc) sameAsChart() {
	p.t.Helper()
	pods := 0
	for _, m := range p.objects {
		if len(m.Spec.Template.Spec.Containers) == 0 {
			continue
		}
		want := 1
		for _, scaler := range p.objects {
			if scaler.Kind == "HorizontalPodAutoscaler" && scaler.Metadata.Name == m.Metadata.Name {
				want = scaler.Spec.MinReplicas
			}
		}
		if m.Spec.Replicas != nil {
			want = *m.Spec.Replicas
		}
		got := 0
		for _, s := range p.of {
			if s.Workload == m.Kind+"/"+m.Metadata.Name {
				got++
				p.sameAsPod(s, m.Spec.Template.Spec.Containers[0])
			}
		}
		if got != want {
			p.t.Errorf("%d pods of %s %s, want %d", got, m.Kind, m.Metadata.Name, want)
		}
		pods += got
	}
	if others := 3 + 1 + 1; len(p.of) != pods+others { // NATS, PostgreSQL, nginx
		p.t.Errorf("%d processes, %d pods", len(p.of), pods)
	}
}

var listensAnywhere = regexp.MustCompile(`^(--[a-z-]*listen)=:(\d+)$`)

// sameAsPod compares one process with its container.
func (p *chartProc) sameAsPod(s topologyService, c manifestContainer) {
	t := p.t
	t.Helper()
	argv, env := s.Argv, s.Env
	if !strings.HasPrefix(s.Workload, "Job/") { // which has ended
		argv, env = procWords(t, s.PID, "cmdline"), procWords(t, s.PID, "environ")
	}
	mounts := filepath.Join(p.dir, "run", "roots", s.Service, "run", "secrets")
	var args, variables []string
	for _, arg := range c.Args {
		if m := listensAnywhere.FindStringSubmatch(arg); m != nil {
			arg = m[1] + "=" + p.addr(s.Service, m[2])
		}
		args = append(args, arg)
	}
	for _, v := range c.Env {
		value := strings.Replace(v.Value, "/run/secrets", mounts, 1)
		if v.ValueFrom != nil {
			value = readText(t, filepath.Join(p.given, v.ValueFrom.SecretKeyRef.Name, v.ValueFrom.SecretKeyRef.Key))
		}
		variables = append(variables, v.Name+"="+value)
		if strings.HasSuffix(v.Name, "_FILE") && !strings.Contains(readText(t, value), "127.0.0.1:") &&
			strings.Contains(v.Name, "NATS") {
			t.Errorf("%s: %s has no address", s.Service, value)
		}
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "TMPDIR=")
	})
	slices.Sort(env)
	slices.Sort(variables)
	if !slices.Equal(argv[1:], args) || len(args) == 0 {
		t.Errorf("%s: arguments\n%q\nwant\n%q", s.Service, argv[1:], args)
	}
	if !slices.Equal(env, variables) || len(variables) == 0 {
		t.Errorf("%s: variables\n%q\nwant\n%q", s.Service, env, variables)
	}
}

// end ends everything as the deletion of the release does, and returns what came of the pods.
func (p *chartProc) end() (all []chartOutcome) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &all)
	}
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.stderr)
	}
	return all
}

// checkOutcomes: each pod was ready and alive whenever it was asked, and has ended by itself.
func (p *chartProc) checkOutcomes(all []chartOutcome) {
	p.t.Helper()
	for _, o := range all {
		p.t.Logf("%-22s exit %d after %4.1f s of %2.0f s; readiness %v, liveness %v (passed, failed)", o.Service,
			o.Exit, o.Took, o.Grace, o.Probes["readiness"], o.Probes["liveness"])
		if o.Killed || o.Exit != 0 {
			p.t.Errorf("%s has not ended as it should: %+v", o.Service, o)
		}
		if of := p.of[o.Service].Workload; !strings.HasPrefix(of, "Deployment/") {
			continue
		}
		for _, kind := range []string{"readiness", "liveness"} {
			if n := o.Probes[kind]; n.Passed == 0 || n.Failed > 0 {
				p.t.Errorf("%s of %s: %+v", kind, o.Service, n)
			}
		}
	}
	if len(all) != len(p.of)-4 { // NATS and PostgreSQL are no pods of the chart
		p.t.Errorf("%d outcomes of %d processes", len(all), len(p.of))
	}
}
