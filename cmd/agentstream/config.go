package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
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
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // JSON knows one kind of number, flags several: their text decides
	if err := dec.Decode(&s.file); err != nil {
		return nil, fmt.Errorf("--config: %s: not a JSON object: %w", s.path, err)
	}
	return s, nil
}

// Validate refuses keys that are no flag: a misspelt one would be ignored otherwise.
func (s *settings) Validate(app *kong.Application) error {
	known := map[string]bool{"config": true}
	_ = kong.Visit(app.Node, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			known[f.Name] = true
		}
		return next(nil)
	})
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
