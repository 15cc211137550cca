package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// routes is the spec of an Ingress.
type routes struct {
	TLS []struct {
		Hosts      []string
		SecretName string
	}
	Rules []struct {
		Host string
		HTTP struct{ Paths []route }
	}
}

type route struct {
	Path, PathType string
	Backend        struct {
		Service struct {
			Name string
			Port struct {
				Name   string
				Number int
			}
		}
	}
}

const annotationPrefix = "nginx.ingress.kubernetes.io/"

// directives are the lines that ingress-nginx writes into a location for its annotations: %s is the value. For gRPC
// those of proxy_ are of grpc_, where nginx has them.
var directives = map[string]string{
	"proxy-body-size":         "client_max_body_size %s;",
	"proxy-buffering":         "proxy_buffering %s;",
	"proxy-next-upstream":     "proxy_next_upstream %s;",
	"proxy-read-timeout":      "proxy_read_timeout %ss;",
	"proxy-request-buffering": "proxy_request_buffering %s;",
	"proxy-send-timeout":      "proxy_send_timeout %ss;",
}

// ofHTTPAlone are directives that nginx does not have for gRPC.
var ofHTTPAlone = []string{"proxy-buffering", "proxy-request-buffering"}

// ingress is what becomes one nginx.
type ingress struct {
	chart     *chart
	upstreams map[string]string   // blocks by name
	hosts     map[string][]string // locations by host
	secrets   map[string]string   // the Secret with the certificate, by host
	pods      map[string]dependency
}

// addIngress adds an nginx that does what ingress-nginx does for the Ingresses of the chart.
func (c *chart) addIngress() error {
	in := &ingress{chart: c, upstreams: map[string]string{}, hosts: map[string][]string{}, secrets: map[string]string{},
		pods: map[string]dependency{}}
	for _, o := range c.objects {
		if o.Kind != "Ingress" {
			continue
		}
		if err := in.add(o); err != nil {
			return fmt.Errorf("Ingress %s: %w", o.Metadata.Name, err)
		}
	}
	if len(in.hosts) == 0 {
		return nil
	}
	s := service{Image: "nginx", Configs: []target{{"ingress", "/etc/nginx/nginx.conf"}}, DependsOn: in.pods,
		pod: &pod{workload: "ingress-nginx", files: map[string]string{}, grace: defaultGrace}}
	for _, secret := range in.secrets {
		for key, text := range c.secrets[secret] {
			s.pod.files["/run/secrets/"+secret+"/"+key] = text
		}
	}
	c.file.Configs["ingress"] = config{in.configuration()}
	c.file.Services["ingress-nginx"] = s
	return nil
}

// add takes the hosts and paths of one Ingress.
func (in *ingress) add(o manifest) error {
	var r routes
	if err := o.decode(&r); err != nil {
		return err
	}
	for _, t := range r.TLS {
		for _, host := range t.Hosts {
			in.secrets[host] = t.SecretName
		}
	}
	for _, rule := range r.Rules {
		for _, path := range rule.HTTP.Paths {
			location, err := in.location(o, path)
			if err != nil {
				return err
			}
			in.hosts[rule.Host] = append(in.hosts[rule.Host], location)
		}
	}
	return nil
}

// location is the block of one path.
func (in *ingress) location(o manifest, r route) (string, error) {
	if r.PathType != "Prefix" {
		return "", fmt.Errorf("the path type %s is not known here", r.PathType)
	}
	protocol := o.Metadata.Annotations[annotationPrefix+"backend-protocol"]
	scheme, upstream := "proxy", r.Backend.Service.Name
	if protocol == "GRPC" {
		scheme, upstream = "grpc", upstream+"-grpc" // kept connections speak one version of HTTP
	}
	lines := []string{fmt.Sprintf("%s_pass %s://%s;", scheme, map[string]string{"proxy": "http", "grpc": "grpc"}[scheme],
		upstream), scheme + "_set_header Host $http_host;", scheme + "_connect_timeout 5s;"}
	if scheme == "proxy" {
		lines = append(lines, "proxy_http_version 1.1;", "proxy_set_header Upgrade $http_upgrade;",
			"proxy_set_header Connection $connection_upgrade;")
	}
	for _, name := range keysInOrder(o.Metadata.Annotations) {
		key := strings.TrimPrefix(name, annotationPrefix)
		line, known := directives[key]
		switch {
		case key == "backend-protocol" && (protocol == "GRPC" || protocol == "HTTP"):
			continue
		case !known || key == name:
			return "", fmt.Errorf("the annotation %s is not known here", name)
		case scheme == "grpc" && slices.Contains(ofHTTPAlone, key):
			continue
		}
		line = fmt.Sprintf(line, o.Metadata.Annotations[name])
		if scheme == "grpc" {
			line = strings.Replace(line, "proxy_", "grpc_", 1)
		}
		lines = append(lines, line)
	}
	path := strings.TrimSuffix(r.Path, "/") + "/" // a prefix ends where an element of the path does
	return "location " + path + " {\n      " + strings.Join(lines, "\n      ") + "\n    }", in.addUpstream(upstream, r)
}

// addUpstream adds the pods that the Service of a path selects.
func (in *ingress) addUpstream(name string, r route) error {
	var e exposure
	for _, o := range in.chart.objects {
		if o.Kind == "Service" && o.Metadata.Name == r.Backend.Service.Name {
			if err := o.decode(&e); err != nil {
				return err
			}
		}
	}
	var servers []string
	for _, pod := range keysInOrder(in.chart.file.Services) {
		p := in.chart.file.Services[pod].pod
		if p == nil || len(e.Selector) == 0 || !isSelected(e.Selector, p.labels) {
			continue
		}
		for _, port := range e.Ports {
			if port.Name != r.Backend.Service.Port.Name && port.Port != r.Backend.Service.Port.Number {
				continue
			}
			n, err := portNumber(port.TargetPort, p.ports)
			if err != nil {
				return err
			}
			servers = append(servers, fmt.Sprintf("    server %s:%d;", pod, n))
			in.pods[pod] = dependency{Condition: healthy}
		}
	}
	if len(servers) == 0 {
		return fmt.Errorf("no pod is behind the Service %s", r.Backend.Service.Name)
	}
	in.upstreams[name] = "upstream " + name + " {\n" + strings.Join(servers, "\n") + "\n    keepalive 320;\n  }"
	return nil
}

func isSelected(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// configuration is the nginx.conf. The listener of HTTPS is that of ingress-nginx's pods, on a port that needs no
// rights.
func (in *ingress) configuration() string {
	var b strings.Builder
	b.WriteString("worker_processes 2;\nworker_rlimit_nofile 16384;\nevents { worker_connections 8192; }\nhttp {\n" +
		"  access_log off;\n  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }\n")
	for _, name := range keysInOrder(in.upstreams) {
		b.WriteString("  " + in.upstreams[name] + "\n")
	}
	for _, host := range slices.Sorted(maps.Keys(in.hosts)) {
		b.WriteString("  server {\n    server_name " + host + ";\n")
		if secret := in.secrets[host]; secret != "" {
			fmt.Fprintf(&b, "    listen 0.0.0.0:8443 ssl http2;\n    ssl_certificate /run/secrets/%[1]s/tls.crt;\n"+
				"    ssl_certificate_key /run/secrets/%[1]s/tls.key;\n", secret)
		} else {
			b.WriteString("    listen 0.0.0.0:8080;\n")
		}
		for _, location := range in.hosts[host] {
			b.WriteString("    " + location + "\n")
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}
