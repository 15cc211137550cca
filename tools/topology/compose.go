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
	Configs  map[string]struct{ Content string }
}

type service struct {
	Image       string
	Command     []string
	Environment map[string]string
	DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
	Configs     []struct{ Source, Target string }
	Secrets     []string
	Volumes     []string
	Healthcheck *struct {
		Test     []string
		Interval string
		Timeout  string
		Retries  int
	}
}

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

// patience is how long a service may take to be healthy.
func (s service) patience() (time.Duration, error) {
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
