package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentstream/adapters/model"
)

// What flags cannot mean is refused with the flag's name, and no error has a credential.
func TestModelFlags(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := ModelFlags{
		Upstream:    []string{"openai=http://127.0.0.1:1", "anthropic=https://api.example.com/v1"},
		UpstreamKey: []string{"openai=" + key},
		Models:      []string{"openai=a", "anthropic=b", "openai=c=d"},
	}
	set := &model.Set{}
	if err := good.add(set); err != nil {
		t.Fatal(err)
	}
	if want := map[string][]string{"openai": {"a", "c=d"}, "anthropic": {"b"}}; !reflect.DeepEqual(set.Providers(), want) {
		t.Errorf("served: %v, want %v", set.Providers(), want)
	}
	if k, err := good.key("openai"); k != "sk-secret" || err != nil {
		t.Errorf("key %q, %v", k, err)
	}
	t.Setenv("OPENAI_API_KEY", "sk-of-the-environment")
	if k, err := (&ModelFlags{}).key("openai-responses"); k != "sk-of-the-environment" || err != nil {
		t.Errorf("key %q, %v", k, err)
	}
	for flag, f := range map[string]ModelFlags{
		"--upstream must be NAME=URL, not \"openai\"": {Upstream: []string{"openai"}},
		"--upstream: ":                {Upstream: []string{"other=http://x"}, Models: []string{"m"}},
		"want an http or https URL":   {Upstream: []string{"openai=http://user:sk-secret@x"}, Models: []string{"m"}},
		"--upstream openai: no --mod": {Upstream: []string{"openai=http://x"}},
		"not \"m\"":                   {Models: []string{"m"}},
		"--upstream-key: ": {Upstream: []string{"openai=http://x"},
			UpstreamKey: []string{"openai=" + key + ".gone"}},
	} {
		if err := f.add(&model.Set{}); err == nil || !strings.Contains(err.Error(), flag) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", flag, err)
		}
	}
}
