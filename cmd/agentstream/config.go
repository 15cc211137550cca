package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/oasdiff/yaml"
)

// settings sets flags to their values from the environment and the configuration file. kong lets a
// resolver win over the environment that it reads itself; here the order is flag, environment,
// file of the environment (_FILE), configuration file.
type settings struct {
	file map[string]any // keys are flag names
	path string
	env  func(string) (string, bool)
}

// loadSettings finds the configuration file before the flags are parsed.
func loadSettings(args []string, env func(string) (string, bool)) (*settings, error) {
	s := &settings{env: env}
	s.path, _ = env("AGENTSTREAM_CONFIG")
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			s.path = v
		} else if a == "--config" && i+1 < len(args) {
			s.path = args[i+1]
		}
	}
	if s.path == "" {
		return s, nil
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if data, err = yaml.YAMLToJSON(data); err == nil { // JSON is YAML
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber() // JSON knows one kind of number, flags several: their text decides
		err = dec.Decode(&s.file)
	}
	if err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
			err = errors.New("it is a " + wrong.Value) // the rest is about Go
		}
		return nil, fmt.Errorf("--config: %s: not an object in YAML or JSON: %w", s.path, err)
	}
	return s, nil
}

// Validate refuses keys that are no flag: a misspelt one would be ignored otherwise.
func (s *settings) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for f := range flagsOf(app.Node) {
		known[f.Name] = true
	}
	var unknown []string
	for key := range s.file {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("--config: %s: no such flag: %s", s.path, strings.Join(unknown, ", "))
}

// flagsOf returns the flags of all commands below a node; some several times.
func flagsOf(root *kong.Node) iter.Seq[*kong.Flag] {
	return func(yield func(*kong.Flag) bool) {
		_ = kong.Visit(root, func(n kong.Visitable, next kong.Next) error {
			if f, ok := n.(*kong.Flag); ok && !yield(f) {
				return errors.New("enough")
			}
			return next(nil)
		})
	}
}

// unknownVariables returns which variables of the environment are named as settings and are none. What Kubernetes sets
// for a service of this name is left out.
func unknownVariables(root *kong.Node, environ []string) (unknown []string) {
	const prefix = "AGENTSTREAM_"
	known := map[string]bool{}
	for f := range flagsOf(root) {
		for _, name := range f.Envs {
			known[name], known[name+"_FILE"] = true, true
		}
	}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if ours && !known[name] && !strings.HasPrefix(rest, "SERVICE_") &&
			!(strings.HasPrefix(rest, "PORT") && strings.Contains(value, "://") || strings.HasPrefix(rest, "PORT_")) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// Resolve returns the value of a flag that is not on the command line; nil leaves it as it is.
func (s *settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, ok := s.env(name); ok {
			return nil, nil // kong has read it
		}
		path, ok := s.env(name + "_FILE")
		if !ok {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s_FILE: %w", name, err)
		}
		return strings.TrimRight(string(data), "\r\n"), nil
	}
	v, ok := s.file[flag.Name]
	if !ok {
		return nil, nil
	}
	if n, ok := v.(json.Number); ok {
		return n.String(), nil
	}
	return v, nil
}
