package arch

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

const docOK = "// Package x is.\n//\n// # What it is\n//\n// # Contract\n//\n// # Concurrency\n//\n// # What it does not do\n//\n// # Where to look next\n"

// Each rule is shown sources that break it and sources that just do not.
func TestArchitectureRulesCanFail(t *testing.T) {
	imp := func(pkg string, paths ...string) string {
		return "package " + pkg + "\nimport (\n_ \"" + strings.Join(paths, "\"\n_ \"") + "\"\n)\n"
	}
	lines := func(n int) string { return strings.Repeat("\t_ = 1\n", n) }
	methods := func(name string, n int) (out string) {
		for i := range n {
			out += fmt.Sprintf("func (t t%d) %s() {}\n", i, name)
		}
		return out
	}
	proven := map[string]bool{"types": true} // by TestTypeNamesCanFail
	for _, c := range []struct {
		rule, path, src string
		want            string // part of the one violation; "": none
	}{
		{"floors", "schema/x.go", imp("schema", "agentstream/fanout"), "it is what all sides agree on"},
		{"floors", "producers/x.go", imp("producers", "agentstream/fanout"), "must not know who reads"},
		{"floors", "producers/x.go", imp("producers", "agentstream/persister"), "must not know who reads"},
		{"floors", "producers/x.go", imp("producers", "agentstream/schema"), ""},
		{"floors", "fanout/x.go", imp("fanout", "agentstream/persister"), "not a database"},
		{"floors", "fanout/x.go", imp("fanout", "agentstream/producers"), "who writes"},
		{"floors", "persister/x.go", imp("persister", "agentstream/fanout"), "by shape only"},
		{"floors", "persister/sqlite/x.go", imp("sqlite", "agentstream/persister/postgres"), "no other adapter"},
		{"floors", "persister/sqlite/x.go", imp("sqlite", "agentstream/persister", "agentstream/schema"), ""},
		{"floors", "persister/x.go", imp("persister", "agentstream/persister/deadletter"), "by shape only"},
		{"floors", "persister/deadletter/x.go", imp("deadletter", "agentstream/persister/postgres"), "no store"},
		{"floors", "persister/postgres/tables/x.go", imp("tables", "agentstream/persister/postgres"), "not the store"},
		{"floors", "persister/postgres/projection/x.go", imp("projection", "agentstream/persister/postgres/tables"),
			"events alone"},
		{"floors", "producers/natsjs/x.go", imp("natsjs", "agentstream/fanout/natsjs"), "no other adapter"},
		{"floors", "adapters/anthropic/x.go", imp("anthropic", "agentstream/producers"), "not written here"},
		{"floors", "protocols/native/x.go", imp("native", "agentstream/protocols/metis"), "no other dialect"},
		{"floors", "protocols/native/x.go", imp("native", "agentstream/fanout"), "no fanout"},
		{"floors", "protocols/native/x.go", imp("native", "agentstream/edge/transport/sse"), "no transport"},
		{"floors", "edge/shape/x.go", imp("shape", "agentstream/edge/dialect"), "before translation"},
		{"floors", "edge/transport/sse/x.go", imp("sse", "agentstream/fanout"), "only writes frames"},
		{"floors", "edge/transport/sse/x.go", imp("sse", "agentstream/edge/dialect"), ""},
		{"floors", "edge/x.go", imp("edge", "agentstream/protocols/native"), "handed in by cmd"},
		{"floors", "edge/x.go", imp("edge", "agentstream/persister"), "not a database"},
		{"floors", "edge/x.go", imp("edge", "agentstream/internal/natskit"), "handed in by cmd"},
		{"floors", "edge/x_test.go", imp("edge", "agentstream/protocols/native", "agentstream/fanout/memory"), ""},
		{"floors", "edge/x_test.go", imp("edge", "agentstream/persister/postgres"), "not a database"},
		{"floors", "fanout/x.go", imp("fanout", "agentstream/cmd/agentstream"), "cmd/agentstream"},
		{"floors", "cmd/agentstream/x.go", imp("main", "agentstream/edge", "agentstream/persister/postgres"), ""},
		{"floors", "cmd/agentstream/x.go", imp("main", "agentstream/internal/testkit"), "is for tests"},
		{"floors", "cmd/agentstream/x.go", imp("main", "agentstream/cmd/agentstream/internal/node"), ""},
		{"floors", "cmd/agentstream/x.go", imp("main", "agentstream/cmd/agentstream/internal/clitest"), "is for tests"},
		{"floors", "cmd/agentstream/internal/cli/x.go", imp("cli", "agentstream/cmd/agentstream/internal/publish"),
			"knows no command"},
		{"floors", "cmd/agentstream/internal/process/x.go", imp("process", "agentstream/cmd/agentstream/internal/node"),
			"knows no role"},
		{"floors", "cmd/agentstream/internal/publish/x.go",
			imp("publish", "agentstream/cmd/agentstream/internal/timeline"), "knows no other"},
		{"floors", "cmd/agentstream/internal/publish/x.go", imp("publish", "agentstream/cmd/agentstream"), "knows no other"},
		{"floors", "cmd/agentstream/internal/publish/x.go",
			imp("publish", "agentstream/cmd/agentstream/internal/cli", "agentstream/producers"), ""},
		{"floors", "fanout/x.go", imp("fanout", "agentstream/schema/schematest"), "is for tests"},
		{"floors", "elsewhere/x.go", imp("elsewhere", "fmt"), "no floor is named"},

		{"clients", "fanout/x.go", imp("fanout", "github.com/nats-io/nats.go"), "nats.go"},
		{"clients", "edge/x_test.go", imp("edge", "github.com/nats-io/nats.go"), "nats.go"},
		{"clients", "fanout/natsjs/x.go", imp("natsjs", "github.com/nats-io/nats.go/jetstream"), ""},
		{"clients", "edge/x.go", imp("edge", "github.com/jackc/pgx/v5"), "pgx"},
		{"clients", "persister/sqlite/x.go", imp("sqlite", "github.com/jackc/pgx/v5"), "pgx"},
		{"clients", "persister/postgres/x.go", imp("postgres", "github.com/jackc/pgx/v5"), ""},
		{"clients", "edge/x.go", imp("edge", "github.com/prometheus/client_golang/prometheus"), "prometheus"},
		{"clients", "cmd/agentstream/x.go", imp("main", "github.com/prometheus/client_golang/prometheus"), ""},
		{"clients", "schema/x.go", imp("schema", "example.org/y"), "example.org/y"},
		{"clients", "schema/x.go", imp("schema", "github.com/oklog/ulid/v2", "encoding/json"), ""},

		{"names", "edge/common/x.go", "package common\n", "common"},
		{"names", "edge/x.go", "package util\n", "util"},
		{"names", "edge/helpers/x_test.go", "package helpers_test\n", "helpers"},
		{"names", "edge/commonmark/x.go", "package commonmark\n", ""},

		{"words", "edge/x.go", "package edge\nvar newOutlets int\n", "broadcast group"},
		{"words", "edge/x.go", "package edge\nvar disk, penalty, letter int\n", ""},
		{"forms", "edge/x.go", "package edge\nfunc copied() {}\n", "participle"},
		{"forms", "edge/x.go", "package edge\nfunc (t t) SaidByClient() bool { return true }\n", "participle"},
		{"forms", "edge/x.go", "package edge\ntype i interface { tells() }\n", "third person"},
		{"forms", "edge/x.go", "package edge\nfunc (t t) waits() bool { return true }\n", "third person"},
		{"forms", "edge/x.go", "package edge\nfunc (t t) calls() int { return 1 }\n", ""},
		{"forms", "edge/x.go", "package edge\nfunc (t t) Done() <-chan struct{} { return nil }\nfunc isAlias() bool { return true }\nfunc seed() {}\n", ""},
		{"forms", "edge/x_test.go", "package edge\nfunc copied() {}\n", ""},
		{"overworked", "edge/x.go", "package edge\n" + methods("take", 9), "9 functions are named take"},
		{"overworked", "edge/x.go", "package edge\n" + methods("take", 8), ""},
		{"verbs", "edge/x.go", "package edge\n\n// X gives a thing.\nvar X int\n", "gives"},
		{"verbs", "edge/x.go", "package edge\n\n// X returns what a server gives.\nvar X int\n", ""},

		{"init", "edge/x.go", "package edge\nfunc init() {}\n", "func init"},
		{"init", "edge/x.go", "package edge\ntype a int\nfunc (a) init() {}\n", ""},
		{"init", "edge/x_test.go", "package edge\nfunc init() {}\n", ""},
		{"init", "edge/x.go", "// Code generated by a program. DO NOT EDIT.\n\npackage edge\nfunc init() {}\n", ""},
		{"init", "edge/x.go", "// Code generated by a person.\n\npackage edge\nfunc init() {}\n", "func init"},

		{"doc", "edge/x.go", "// Package edge is.\npackage edge\n", "no package comment"},
		{"doc", "edge/doc.go", "// Edge.\npackage edge\n", "no package comment"},
		{"doc", "edge/doc.go", strings.Replace(docOK, "# Contract", "# Promise", 1) + "package edge\n", "# Contract"},
		{"doc", "edge/doc.go", docOK + "package edge\n", ""},

		{"length", "edge/x.go", "package edge\n" + strings.Repeat("\n", 600), "has 601 lines"},
		{"length", "edge/x.go", "package edge\n" + strings.Repeat("\n", 599), ""},
		{"length", "edge/x.go", "package edge\nfunc f() {\n" + lines(79) + "}\n", "f has 81 lines"},
		{"length", "edge/x.go", "package edge\nfunc f() {\n" + lines(78) + "}\n", ""},
		{"length", "edge/x.go", "// Code generated by a program. DO NOT EDIT.\n\npackage edge\nfunc f() {\n" +
			lines(700) + "}\n", ""},
		{"length", "edge/x.go", "// Code generated by a person.\n\npackage edge\nfunc f() {\n" + lines(79) + "}\n",
			"f has 81 lines"},

		{"sleep", "edge/x.go", "package edge\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "time.Sleep"},
		{"sleep", "edge/x.go", "package edge\nimport \"time\"\nvar f = time.Sleep\n", "time.Sleep"},
		{"sleep", "edge/x_test.go", "package edge\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", ""},

		{"interface", "edge/x.go", "package edge\ntype i interface { A(); B(); C(); D(); E() }\n", "5 methods"},
		{"interface", "edge/x.go", "package edge\ntype i interface { A(); B(); C(); D() }\n", ""},
		{"interface", "edge/x.go", "package edge\ntype i interface { j; C(); D() }\ntype j interface { A(); B(); E() }\n", "5 methods"},
		{"interface", "edge/x.go", "package edge\nvar v interface { A(); B(); C(); D(); E() }\n", "5 methods"},
		{"interface", "edge/x.go", "package edge\nimport \"io\"\ntype i interface { io.Reader; B(); C(); D(); E() }\n",
			"5 methods"},
		{"interface", "edge/x.go", "package edge\ntype n interface { ~int | ~int8 | ~int16 | ~int32 | ~int64 }\n", ""},

		{"paths", "edge/x.go", "package edge\nconst p = \"/ro" + "ot/x\"\n", "ot"},
		{"paths", "docs/x.md", "cd /wo" + "rk/main\n", "rk"},
		{"paths", "docs/x.md", "see " + "/ho" + "me/me\n", "me"},
		{"paths", "Dockerfile", "FROM gc" + "r.io/x\n", "io"},
		{"race", "adapters/openai/x.go", "package openai\nfunc f() { go f() }\n", "starts a goroutine"},
		{"race", "adapters/openai/x_test.go", "package openai\nimport \"sync\"\nvar mu sync.Mutex\n", "sync"},
		{"race", "adapters/openai/x.go", "package openai\nimport \"strings\"\nvar b strings.Builder\n", ""},
		{"race", "producers/x.go", "package producers\nfunc f() { go f() }\n", ""},
		{"race", "producers/x_test.go", "//go:build !race\n\npackage producers\nfunc f() { go f() }\n", "starts a goroutine"},
		{"race", "producers/x_test.go", "//go:build !race\n\npackage producers\nimport \"sync\"\nvar mu sync.Mutex\n", "sync"},
		{"race", "producers/x_test.go", "//go:build !race\n\npackage producers\nfunc f() {}\n", ""},
		{"race", "producers/x.go", "//go:build !race\n\npackage producers\nfunc f() {}\n", "is no test"},
		{"race", "tools/make/test.mk", "\nUNRACED := adapters/openai\n", "UNRACED is not"},

		{"rooms", "edge/x.go", "package edge\n" + strings.Repeat("\n", 300), "301 lines and no test"},
		{"rooms", "edge/x.go", "package edge\n" + strings.Repeat("\n", 299), ""},
		{"rooms", "edge/edgetest/x.go", "package edgetest\n" + strings.Repeat("\n", 400), ""},
		{"rooms", "edge/x.go", "// Code generated by a program. DO NOT EDIT.\n\npackage edge\n" +
			strings.Repeat("\n", 400), ""},
		{"leaks", "producers/worker/x.go", "package worker\nconst strategy = \"multitask_strategy\"\n", "multitask_strategy"},
		{"leaks", "producers/x.go", "package producers\nconst late = \"AI_PROVIDER_TIMEOUT\"\n", "AI_PROVIDER"},
		{"leaks", "schema/x.go", "package schema\n\n// x is of qoder.\nvar x int\n", "qoder"},
		{"leaks", "persister/sqlstore/x.go", "package sqlstore\nconst feed = \"runtime-account\"\n", "runtime-account"},
		{"leaks", "edge/rest/x.go", "package rest\nimport _ \"agentstream/protocols/langgraph\"\n", "langgraph"},
		{"leaks", "adapters/langgraph/x.go", "package langgraph\n", ""},
		{"leaks", "edge/x_test.go", "package edge\nconst who = \"metis\"\n", ""},
		{"leaks", "protocols/nimi/x.go", "package nimi\nconst late = \"AI_PROVIDER_TIMEOUT\"\n", ""},

		{"lookups", "edge/x.go", "package edge\nfunc f(o []byte, names []string) {\nfor _, n := range names { schema.Field(o, n) }\n}\n", "schema.Field in a loop"},
		{"lookups", "edge/x.go", "package edge\nfunc f(o []byte, a []t) {\nfor i := 0; i < len(a); i++ { use(schema.Field(o, a[i].id)) }\n}\n", "schema.Field in a loop"},
		{"lookups", "edge/x.go", "package edge\nfunc f(q query, t thread) bool {\nfor n, v := range q.m { if !bytes.Equal(schema.Field(t.Metadata, n), v) { return false } }\nreturn true\n}\n", "schema.Field in a loop"},
		{"lookups", "edge/x.go", "package edge\nfunc f(o []byte, a [][]byte) {\nfor _, e := range a { for range 3 { schema.Field(e, \"x\") } }\n}\n", "schema.Field in a loop"},
		{"lookups", "edge/x.go", "package edge\nfunc f(o []byte, names []string) bool {\nreturn slices.ContainsFunc(names, func(n string) bool { return schema.Field(o, n) != nil })\n}\n", "schema.Field in a loop"},
		{"lookups", "edge/x.go", "package edge\nfunc field(o []byte, n string) []byte { return schema.Field(o, n) }\nfunc f(o []byte, names []string) {\nfor _, n := range names { field(o, n) }\n}\n", "field in a loop"},
		{"lookups", "schema/x.go", "package schema\nfunc f(o []byte, names []string) {\nfor _, n := range names { Field(o, n) }\n}\n", "Field in a loop"},
		{"lookups", "edge/x.go", "package edge\nfunc f(o []byte) {\nfor e := range jsonscan.Elements(o) { schema.Field(e, \"x\") }\n}\n", ""},
		{"lookups", "edge/x.go", "package edge\nfunc f(a []t) {\nfor i := range a { schema.Field(a[i].raw, \"x\") }\n}\n", ""},
		{"lookups", "edge/x.go", "package edge\nfunc f(a []t) {\nfor _, r := range a { p := r.Payload(); schema.Field(p, \"x\") }\n}\n", ""},
		{"lookups", "edge/x.go", "package edge\nfunc f(a []t, o []byte) {\nfor _, e := range slices.Collect(jsonscan.Elements(schema.Field(o, \"x\"))) { use(e) }\n}\n", ""},
		{"lookups", "edge/x_test.go", "package edge\nfunc f(o []byte, names []string) {\nfor _, n := range names { schema.Field(o, n) }\n}\n", ""},

		{"paths", "docs/x.md", "see ../shared/work/home and http://x/home, docs/root.md, a/root\n", ""},
	} {
		for _, r := range rules {
			if r.name != c.rule {
				continue
			}
			proven[r.name] = proven[r.name] || c.want != ""
			tr, err := load(fstest.MapFS{c.path: {Data: []byte(c.src)}})
			if err != nil {
				t.Fatalf("%s %s: %v", c.rule, c.path, err)
			}
			got := r.check(tr)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("%s: %s breaks nothing, got %v\n%s", c.rule, c.path, got, c.src)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0].what, c.want)):
				t.Errorf("%s: %s: got %v, want one with %q\n%s", c.rule, c.path, got, c.want, c.src)
			}
		}
	}
	for _, r := range rules {
		if !proven[r.name] {
			t.Errorf("rule %s was never seen to fail", r.name)
		}
	}
}

// TestTypeNamesCanFail shows packages that have a type of the same name: as many as may be, and one more.
func TestTypeNamesCanFail(t *testing.T) {
	for _, c := range []struct {
		name  string
		rooms int
		want  int
	}{{"call", mostTypeRooms, 0}, {"call", mostTypeRooms + 1, 1}, {"Config", mostTypeRooms + 1, 0}} {
		files := fstest.MapFS{}
		for i := range c.rooms {
			files[fmt.Sprintf("edge/p%d/x.go", i)] = &fstest.MapFile{Data: []byte("package p\ntype " + c.name + " int\n")}
		}
		tr, err := load(files)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkTypeNames(tr); len(got) != c.want {
			t.Errorf("%s in %d packages: %v, want %d", c.name, c.rooms, got, c.want)
		}
	}
}

func TestArchitectureExcuses(t *testing.T) {
	tr, err := load(fstest.MapFS{
		"edge/doc.go": {Data: []byte(docOK + "package edge\n")},
		"edge/x.go":   {Data: []byte("package edge\nfunc init() {}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		excused map[string]string
		want    string
	}{
		{nil, "func init"},
		{map[string]string{"init:edge/x.go": "for the test"}, ""},
		{map[string]string{"init:edge/x.go": "for the test", "init:edge/y.go": "stale"}, "excuses nothing"},
	} {
		got := strings.Join(judge(tr, c.excused), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.excused, got, c.want)
		}
	}
}

func TestArchitectureHasReasons(t *testing.T) {
	for _, r := range rules {
		if r.reason == "" {
			t.Errorf("rule %s has no reason", r.name)
		}
	}
	for e, reason := range excused {
		if reason == "" {
			t.Errorf("excuse %s has no reason", e)
		}
	}
	for _, f := range floors {
		if f.reason == "" {
			t.Errorf("floor of %s has no reason", f.dir)
		}
	}
}
