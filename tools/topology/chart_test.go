package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// chartOf reads manifests that are given as a text.
func chartOf(t *testing.T, text string) *chart {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := readObjects(path)
	if err != nil {
		t.Fatal(err)
	}
	return &chart{file: &file{Services: map[string]service{}, Configs: map[string]config{}, hosts: map[string]string{}},
		objects: objects, secrets: givenTexts{"given": {"a": "of a", "url": "nats://x@nats:4222"}}, configs: givenTexts{}}
}

const oneDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: edge}
spec:
  template:
    metadata: {labels: {part: edge, more: x}}
    spec:
      terminationGracePeriodSeconds: 7
      volumes: [{name: v, secret: {secretName: given}}]
      containers:
        - name: c
          args: [edge, "--listen=:8080"]
          env: [{name: A, value: b}, {name: S, valueFrom: {secretKeyRef: {name: given, key: a}}}]
          ports: [{name: clients, containerPort: 8080}, {name: health, containerPort: 8083}]
          readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 2}
          volumeMounts: [{name: v, mountPath: /run/secrets/x}]
`

// A pod is what its manifest says, its replicas are the least of its autoscaler, and it waits for the Job.
func TestPods(t *testing.T) {
	c := chartOf(t, oneDeployment+`---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: edge}
spec: {scaleTargetRef: {name: edge}, minReplicas: 3}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {containers: [{name: m, args: [migrate]}]}}}
`)
	if err := c.addPods(map[string]dependency{"postgres": {healthy}}); err != nil {
		t.Fatal(err)
	}
	if len(c.file.Services) != 4 {
		t.Fatalf("services %v", keysInOrder(c.file.Services))
	}
	s := c.file.Services["edge-2"]
	ready := s.pod.probes["readiness"]
	if strings.Join(s.Command, " ") != "edge --listen=:8080" || s.Environment["A"] != "b" ||
		s.Environment["S"] != "of a" || s.pod.files["/run/secrets/x/url"] != "nats://x@nats:4222" ||
		s.pod.grace != 7*time.Second ||
		ready.port != 8083 || ready.PeriodSeconds != 2 || ready.FailureThreshold != 3 || ready.TimeoutSeconds != 1 {
		t.Errorf("%+v %+v", s, s.pod)
	}
	job := c.file.Services["migrate"]
	if s.DependsOn["migrate"].Condition != completed || job.DependsOn["postgres"].Condition != healthy ||
		job.pod.grace != defaultGrace {
		t.Errorf("%v, %+v", s.DependsOn, job)
	}
}

// What a process cannot be given is refused, and not left out.
func TestPodsThatAreRefused(t *testing.T) {
	for name, change := range map[string][2]string{
		"a command":      {"args:", "command: [sh]\n          args:"},
		"a hook":         {"args:", "lifecycle: {preStop: {sleep: {seconds: 1}}}\n          args:"},
		"another source": {"secretKeyRef: {name: given, key: a}", "fieldRef: {fieldPath: x}"},
		"no such key":    {"key: a", "key: none"},
		"no such Secret": {"secretName: given", "secretName: none"},
		"no such port":   {"port: health", "port: none"},
		"another probe":  {"httpGet: {path: /readyz, port: health}", "tcpSocket: {port: 1}"},
		"no probe":       {"readinessProbe", "unknown"},
		"a subPath":      {"mountPath:", "subPath: a, mountPath:"},
		"two containers": {"- name: c", "- name: other\n        - name: c"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(oneDeployment, change[0], change[1], 1)
			if text == oneDeployment {
				t.Fatal("nothing is changed")
			}
			if err := chartOf(t, text).addPods(nil); err == nil {
				t.Error("it is not refused")
			}
		})
	}
}

const oneIngress = `---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {part: edge}, ports: [{name: clients, port: 80, targetPort: clients}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: a
  annotations:
    nginx.ingress.kubernetes.io/proxy-read-timeout: "3600"
    nginx.ingress.kubernetes.io/proxy-buffering: "off"
spec:
  tls: [{hosts: [h.example], secretName: given}]
  rules:
    - host: h.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {name: clients}}}}]}
`

// Annotations become what ingress-nginx makes of them, also for gRPC, and one that is not known is refused.
func TestIngress(t *testing.T) {
	second := oneIngress[strings.LastIndex(oneIngress, "---"):]
	rpc := strings.NewReplacer("name: a\n", "name: g\n", "path: /,", "path: /s.V1,",
		"annotations:", "annotations:\n    nginx.ingress.kubernetes.io/backend-protocol: GRPC").Replace(second)
	c := chartOf(t, oneDeployment+oneIngress+rpc)
	if err := c.addPods(nil); err != nil {
		t.Fatal(err)
	}
	if err := c.addIngress(); err != nil {
		t.Fatal(err)
	}
	conf := c.file.Configs["ingress"].Content
	for _, want := range []string{"listen 0.0.0.0:8443 ssl http2;", "server edge-0:8080;", "proxy_read_timeout 3600s;",
		"proxy_buffering off;", "grpc_read_timeout 3600s;", "location /s.V1/ {", "grpc_pass grpc://front-grpc;"} {
		if !strings.Contains(conf, want) {
			t.Errorf("there is no %q in\n%s", want, conf)
		}
	}
	front := c.file.Services["ingress-nginx"]
	if strings.Contains(conf, "grpc_buffering") || front.DependsOn["edge-0"].Condition != healthy {
		t.Errorf("%s\n%+v", conf, front)
	}
	for _, change := range [][2]string{
		{"proxy-buffering", "server-snippet"},
		{"Prefix", "Exact"},
		{"selector: {part: edge}", "selector: {part: x}"},
		{"nginx.ingress.kubernetes.io/proxy-buffering", "other.example/proxy-buffering"},
	} {
		c := chartOf(t, oneDeployment+strings.Replace(oneIngress, change[0], change[1], 1))
		if err := c.addPods(nil); err != nil {
			t.Fatal(err)
		}
		if err := c.addIngress(); err == nil {
			t.Errorf("%s is not refused", change[1])
		}
	}
}

// The values of the NATS chart become a server's configuration, and one that is not known is refused.
func TestNATSValues(t *testing.T) {
	dir := t.TempDir()
	more := filepath.Join(dir, "more.yaml")
	added := "config: {merge: {$include: u.conf, a: {b: << 5MB >>, c: [1]}}}"
	if err := os.WriteFile(more, []byte(added), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := readNATSValues([]string{"../../deploy/helm/nats-values.yaml", more})
	if err != nil {
		t.Fatal(err)
	}
	conf := natsConfig(v)
	for _, want := range []string{"nats://nats-2.nats-headless:6222\n",
		"sync_interval: \"always\"", "max_file_store: 100Gi",
		"max_memory_store: 256Mi",
		"\ninclude u.conf\n", "a {\n  b: 5MB\n  c: [1]\n}"} {
		if !strings.Contains(conf, want) {
			t.Errorf("there is no %q in\n%s", want, conf)
		}
	}
	for _, text := range []string{"config: {leafnodes: {enabled: true}}", "config: {cluster: {enabled: false}}",
		"config: ["} {
		if err := os.WriteFile(more, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readNATSValues([]string{"../../deploy/helm/nats-values.yaml", more}); err == nil {
			t.Errorf("%s is not refused", text)
		}
	}
}

// Readiness follows its thresholds, what fails before the first success is counted apart, and liveness that fails too
// often is an error.
func TestKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		k := &kubelet{results: map[string]*probed{}, ask: func(context.Context, probe) error {
			// Asked at 0 s, 2 s, 4 s …: it starts until 3 s, and fails from 9 s on.
			if at := time.Since(begun); at < 3*time.Second || at > 9*time.Second {
				return errors.New("down")
			}
			return nil
		}}
		p := probe{PeriodSeconds: 2, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
		ended := make(chan error, 1)
		go func() { ended <- k.run(t.Context(), map[string]probe{"readiness": p, "liveness": p}) }()
		for at, want := range map[time.Duration]bool{3 * time.Second: false, 5 * time.Second: true, 13 * time.Second: true} {
			time.AfterFunc(at, func() {
				if k.isReady() != want {
					t.Errorf("ready after %s: %t", at, !want)
				}
			})
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "liveness probe has failed 3 times") {
			t.Error(err)
		}
		if took := time.Since(begun); took != 14*time.Second {
			t.Errorf("it ended after %s", took)
		}
		if c := k.counts()["liveness"]; c != (probed{Passed: 3, Failed: 3, Early: 2}) {
			t.Errorf("%+v", c)
		}
	})
}

// A startup probe holds the others back, and a topology that ends ends the probes.
func TestStartupProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		k := &kubelet{results: map[string]*probed{}, ask: func(context.Context, probe) error {
			if time.Since(begun) < 5*time.Second {
				return errors.New("it starts")
			}
			return nil
		}}
		p := probe{PeriodSeconds: 2, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
		ctx, stop := context.WithTimeout(t.Context(), 9*time.Second)
		defer stop()
		slow := p
		slow.FailureThreshold = 9
		if err := k.run(ctx, map[string]probe{"startup": slow, "readiness": p}); err != nil {
			t.Error(err)
		}
		c := k.counts()
		if c["startup"] != (probed{Passed: 1, Early: 3}) || c["readiness"] != (probed{Passed: 2}) {
			t.Errorf("%+v", c)
		}
	})
}
