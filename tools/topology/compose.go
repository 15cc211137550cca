package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/oasdiff/yaml"
)

// file is what is read of a compose file.
type file struct {
	Services map[string]service
	Secrets  map[string]struct{ File string }
	Configs  map[string]config

	hosts map[string]string // services by the names that DNS has for them, beside their own
}

type config struct{ Content string }

// find returns the service that a host name means.
func (f *file) find(host string) (name string, ok bool) {
	if name, ok = f.hosts[host]; ok {
		return name, true
	}
	_, ok = f.Services[host]
	return host, ok
}

type service struct {
	Image       string
	Command     []string
	Environment map[string]string
	DependsOn   map[string]dependency `json:"depends_on"`
	Configs     []target
	Secrets     []string
	Volumes     []string
	Healthcheck *healthcheck

	pod *pod // for what is a pod of the chart
}

type healthcheck struct {
	Test     []string
	Interval string
	Timeout  string
	Retries  int
}

type dependency struct{ Condition string }

type target struct{ Source, Target string }

// Conditions of depends_on, beside service_started.
const (
	healthy   = "service_healthy"
	completed = "service_completed_successfully"
)

// of expands what compose does in values: ${NAME:-default}, and $$ for $.
var of = regexp.MustCompile(`\$\$|\$\{(\w+)(?::-([^}]*))?\}`)

func read(path string) (*file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	expanded := of.ReplaceAllStringFunc(string(text), func(found string) string {
		m := of.FindStringSubmatch(found)
		switch value := os.Getenv(m[1]); {
		case found == "$$":
			return "$"
		case value != "":
			return value
		}
		return m[2]
	})
	data, err := yaml.YAMLToJSON([]byte(expanded))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &file{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, s := range f.Secrets {
		if !filepath.IsAbs(s.File) {
			s.File = filepath.Join(filepath.Dir(path), s.File)
			f.Secrets[name] = s
		}
	}
	return f, nil
}

// podPatience is how long a pod may take to be ready: it waits for others.
const podPatience = 90 * time.Second

// patience is how long a service may take to be healthy.
func (s service) patience() (time.Duration, error) {
	if s.pod != nil {
		return podPatience, nil
	}
	if s.Healthcheck == nil {
		return 0, nil
	}
	every, err := time.ParseDuration(s.Healthcheck.Interval)
	return every * time.Duration(s.Healthcheck.Retries), err
}

// kind is the image without its tag.
func (s service) kind() string {
	kind, _, _ := strings.Cut(s.Image, ":")
	return kind
}
