package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A compose file is read with its variables, and secrets are found beside it.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "compose.yml")
	t.Setenv("TOPOLOGY_SET", "set")
	text := "services:\n  a:\n    image: img:${TOPOLOGY_NONE:-1}\n    command: [\"${TOPOLOGY_SET}\", \"$$x\"]\n    healthcheck: {interval: 2s, retries: 3}\nsecrets:\n  s: {file: secret.txt}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	a := f.Services["a"]
	if a.kind() != "img" || a.Image != "img:1" || strings.Join(a.Command, " ") != "set $x" ||
		f.Secrets["s"].File != filepath.Join(dir, "secret.txt") {
		t.Errorf("%+v, %+v", a, f.Secrets)
	}
	if d, err := a.patience(); d != 6*time.Second || err != nil {
		t.Errorf("patience %v, %v", d, err)
	}
	if _, err := read(filepath.Join(dir, "none.yml")); err == nil {
		t.Error("a file that is not there is read")
	}
}

// Addresses of services and paths of volumes are mapped to what stands for them; all else stays.
func TestMapped(t *testing.T) {
	dir := t.TempDir()
	top := &topology{dir: dir, ports: map[string]int{}, file: &file{Services: map[string]service{"db": {}, "edge": {}}}}
	p, err := top.makePlace("edge", service{Volumes: []string{"data:/var/data"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.mapText("postgres://db:5432/x --data /var/data/a /var/database http://elsewhere:8080 0.0.0.0:8080\n  listen 8080;")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("postgres://127.0.0.1:%d/x --data %s/volumes/data/a /var/database http://elsewhere:8080 127.0.0.1:%d\n  listen 127.0.0.1:%d;",
		top.ports["db:5432"], dir, top.ports["edge:8080"], top.ports["edge:8080"])
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := top.makePlace("edge", service{Volumes: []string{"data"}}); err == nil {
		t.Error("a volume without a path has a place")
	}
}
