package native

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

var baseline = flag.Bool("baseline", false, "take the contract as it is for the one that must not be broken")

const (
	contractDir  = "../../schema/contracts/agent/v1"
	baselineFile = contractDir + "/agent.baseline.json"
)

// compileText compiles the contract, or a text in its place.
func compileText(t *testing.T, text string) protoreflect.FileDescriptor {
	t.Helper()
	resolver := &protocompile.SourceResolver{ImportPaths: []string{contractDir}}
	if text != "" {
		resolver.ImportPaths = nil
		resolver.Accessor = protocompile.SourceAccessorFromMap(map[string]string{"agent.proto": text})
	}
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(resolver)}
	files, err := c.Compile(context.Background(), "agent.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

func contractText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(contractDir, "agent.proto"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fileProto returns a descriptor under the path that its users know it by.
func fileProto(fd protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	p := protodesc.ToFileDescriptorProto(fd)
	p.Name = proto.String("agent/v1/agent.proto")
	return p
}

// TestDescriptorIsTheContract holds that what reflection shows is what the contract says.
func TestDescriptorIsTheContract(t *testing.T) {
	want := fileProto(compileText(t, ""))
	if *update {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{want}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("agent.binpb", b, 0o644); err != nil {
			t.Fatal(err)
		}
		descriptors = b
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(descriptors, set); err != nil || len(set.File) != 1 {
		t.Fatalf("%d files, %v", len(set.File), err)
	}
	if got := set.File[0]; !proto.Equal(got, want) {
		t.Errorf("agent.binpb is not the contract (go test -update writes it)\ngot  %v\nwant %v", got, want)
	}
}

// TestContractBreaksNobody compares the contract with the one that clients were built with.
func TestContractBreaksNobody(t *testing.T) {
	now := fileProto(compileText(t, ""))
	if *baseline {
		b, err := protojson.MarshalOptions{Multiline: true}.Marshal(now)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(baselineFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, complaint := range breaks(readBaseline(t), now) {
		t.Error(complaint)
	}
}

func readBaseline(t *testing.T) *descriptorpb.FileDescriptorProto {
	t.Helper()
	b, err := os.ReadFile(baselineFile)
	if err != nil {
		t.Fatal(err)
	}
	fd := &descriptorpb.FileDescriptorProto{}
	if err := protojson.Unmarshal(b, fd); err != nil {
		t.Fatal(err)
	}
	return fd
}

// breaks says what in a contract a client of the older one would not survive: on the wire, in the JSON
// form, or in code that was generated from it.
func breaks(old, now *descriptorpb.FileDescriptorProto) (out []string) {
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if old.GetPackage() != now.GetPackage() {
		say("package %s is now %s", old.GetPackage(), now.GetPackage())
	}
	if old.GetSyntax() != now.GetSyntax() {
		say("syntax %s is now %s", old.GetSyntax(), now.GetSyntax())
	}
	if a, b := old.GetOptions().GetGoPackage(), now.GetOptions().GetGoPackage(); a != b {
		say("go_package %s is now %s", a, b)
	}
	for _, m := range old.GetMessageType() {
		if n := named(now.GetMessageType(), m.GetName()); n == nil {
			say("message %s is gone", m.GetName())
		} else {
			out = append(out, messageBreaks(m, n)...)
		}
	}
	for _, e := range old.GetEnumType() {
		if n := named(now.GetEnumType(), e.GetName()); n == nil {
			say("enum %s is gone", e.GetName())
		} else {
			out = append(out, enumBreaks(e, n)...)
		}
	}
	for _, s := range old.GetService() {
		if n := named(now.GetService(), s.GetName()); n == nil {
			say("service %s is gone", s.GetName())
		} else {
			out = append(out, serviceBreaks(s, n)...)
		}
	}
	return out
}

// named finds an element by name; the zero T is none.
func named[T interface {
	comparable
	GetName() string
}](list []T, name string) (none T) {
	for _, e := range list {
		if e.GetName() == name {
			return e
		}
	}
	return none
}

func messageBreaks(old, now *descriptorpb.DescriptorProto) (out []string) {
	say := func(format string, a ...any) { out = append(out, old.GetName()+": "+fmt.Sprintf(format, a...)) }
	for _, f := range old.GetField() {
		i := slices.IndexFunc(now.GetField(), func(n *descriptorpb.FieldDescriptorProto) bool { return n.GetNumber() == f.GetNumber() })
		if i < 0 {
			if !reservedNumber(now, f.GetNumber()) || !slices.Contains(now.GetReservedName(), f.GetName()) {
				say("field %s = %d is gone and its number and name are not both reserved", f.GetName(), f.GetNumber())
			}
			continue
		}
		n := now.GetField()[i]
		if n.GetName() != f.GetName() {
			say("field %d %s is now called %s", f.GetNumber(), f.GetName(), n.GetName())
		}
		if n.GetJsonName() != f.GetJsonName() {
			say("field %s is %s in JSON, was %s", f.GetName(), n.GetJsonName(), f.GetJsonName())
		}
		if n.GetType() != f.GetType() || n.GetTypeName() != f.GetTypeName() {
			say("field %s is now %s %s, was %s %s", f.GetName(), n.GetType(), n.GetTypeName(), f.GetType(), f.GetTypeName())
		}
		if n.GetLabel() != f.GetLabel() || n.GetProto3Optional() != f.GetProto3Optional() {
			say("field %s has another cardinality", f.GetName())
		}
		if realOneof(now, n) != realOneof(old, f) {
			say("field %s has changed its oneof", f.GetName())
		}
	}
	for _, r := range old.GetReservedRange() {
		for n := r.GetStart(); n < r.GetEnd(); n++ {
			if !reservedNumber(now, n) {
				say("number %d is no longer reserved", n)
			}
		}
	}
	for _, name := range old.GetReservedName() {
		if !slices.Contains(now.GetReservedName(), name) {
			say("name %s is no longer reserved", name)
		}
	}
	return out
}

// realOneof returns the oneof of a field, "" for none and for the one that "optional" is written as.
func realOneof(m *descriptorpb.DescriptorProto, f *descriptorpb.FieldDescriptorProto) string {
	if f.OneofIndex == nil || f.GetProto3Optional() {
		return ""
	}
	return m.GetOneofDecl()[f.GetOneofIndex()].GetName()
}

func reservedNumber(m *descriptorpb.DescriptorProto, n int32) bool {
	return slices.ContainsFunc(m.GetReservedRange(), func(r *descriptorpb.DescriptorProto_ReservedRange) bool {
		return n >= r.GetStart() && n < r.GetEnd()
	})
}

func enumBreaks(old, now *descriptorpb.EnumDescriptorProto) (out []string) {
	for _, v := range old.GetValue() {
		n := named(now.GetValue(), v.GetName())
		if n == nil {
			out = append(out, fmt.Sprintf("%s: value %s is gone", old.GetName(), v.GetName()))
		} else if n.GetNumber() != v.GetNumber() {
			out = append(out, fmt.Sprintf("%s: value %s is now %d, was %d", old.GetName(), v.GetName(), n.GetNumber(),
				v.GetNumber()))
		}
	}
	return out
}

func serviceBreaks(old, now *descriptorpb.ServiceDescriptorProto) (out []string) {
	for _, m := range old.GetMethod() {
		n := named(now.GetMethod(), m.GetName())
		switch {
		case n == nil:
			out = append(out, fmt.Sprintf("%s: method %s is gone", old.GetName(), m.GetName()))
		case n.GetInputType() != m.GetInputType() || n.GetOutputType() != m.GetOutputType():
			out = append(out, fmt.Sprintf("%s: method %s has other messages", old.GetName(), m.GetName()))
		case n.GetClientStreaming() != m.GetClientStreaming() || n.GetServerStreaming() != m.GetServerStreaming():
			out = append(out, fmt.Sprintf("%s: method %s streams otherwise", old.GetName(), m.GetName()))
		}
	}
	return out
}

// TestBreakingChangesAreFound changes the contract in each way that must not be and sees that the rule
// for it complains; and in ways that may be, and sees that none does.
func TestBreakingChangesAreFound(t *testing.T) {
	text := contractText(t)
	reserve := func(s string) string {
		return strings.Replace(s, "message Event {", "message Event {\n  reserved 99; reserved \"old\";", 1)
	}
	for _, tt := range []struct {
		name     string
		old, now string // replaced in the contract; several, separated by |
		want     string // in a complaint; "": there is none
		before   func(string) string
	}{
		{name: "nothing"},
		{name: "new field", old: "string payload = 13;", now: "string payload = 13; string more = 14;"},
		{name: "new value", old: "DETAIL_FULL = 1;", now: "DETAIL_FULL = 1; DETAIL_SOME = 2;"},
		{name: "new method", old: "returns (stream Event);",
			now: "returns (stream Event); rpc Other(StreamRequest) returns (Event);"},
		{name: "field gone, reserved", old: "string actor = 11;", now: `reserved 11; reserved "actor";`},
		{name: "package", old: "package agent.v1;|agent.v1.", now: "package agent.v2;|agent.v2.",
			want: "package agent.v1 is now agent.v2"},
		{name: "go package", old: ";agentv1", now: ";agentone", want: "go_package"},
		{name: "message gone", old: "message Event {|(stream Event)|Event event",
			now: "message Happening {|(stream Happening)|Happening event", want: "message Event is gone"},
		{name: "enum gone", old: "enum Detail|Detail detail", now: "enum Grain|Grain detail", want: "enum Detail is gone"},
		{name: "value gone", old: "DETAIL_FULL = 1;", now: "DETAIL_WHOLE = 1;", want: "value DETAIL_FULL is gone"},
		{name: "value number", old: "DETAIL_FULL = 1;", now: "DETAIL_FULL = 2;", want: "value DETAIL_FULL is now 2"},
		{name: "service gone", old: "service AgentRun", now: "service Runs", want: "service AgentRun is gone"},
		{name: "method gone", old: "rpc Stream(", now: "rpc Watch(", want: "method Stream is gone"},
		{name: "method's messages", old: "rpc Stream(StreamRequest)", now: "rpc Stream(Event)",
			want: "method Stream has other messages"},
		{name: "server streaming", old: "returns (stream Event)", now: "returns (Event)",
			want: "method Stream streams otherwise"},
		{name: "client streaming", old: "rpc Stream(StreamRequest)", now: "rpc Stream(stream StreamRequest)",
			want: "method Stream streams otherwise"},
		{name: "field gone", old: "string actor = 11;", now: "", want: "field actor = 11 is gone"},
		{name: "field gone, only its number reserved", old: "string actor = 11;", now: "reserved 11;",
			want: "field actor = 11 is gone"},
		{name: "field renumbered", old: "string actor = 11;", now: "string actor = 14;", want: "field actor = 11 is gone"},
		{name: "field renamed", old: "string actor = 11;", now: `string who = 11 [json_name = "actor"];`,
			want: "field 11 actor is now called who"},
		{name: "JSON name", old: "string actor = 11;", now: `string actor = 11 [json_name = "who"];`,
			want: "field actor is who in JSON"},
		{name: "field type", old: "string payload = 13;", now: "bytes payload = 13;",
			want: "field payload is now TYPE_BYTES"},
		{name: "field's message", old: "Detail detail = 4;", now: "Other detail = 4;|enum Other { OTHER = 0; }",
			want: "field detail is now"},
		{name: "repeated", old: "repeated string path", now: "string path", want: "field path has another cardinality"},
		{name: "optional", old: "optional string child_id", now: "string child_id",
			want: "field child_id has another cardinality"},
		{name: "oneof", old: "string after_id = 3;", now: "oneof cursor { string after_id = 3; }",
			want: "field after_id has changed its oneof"},
		{name: "number no longer reserved", old: "reserved 99;", now: "", want: "number 99 is no longer reserved",
			before: reserve},
		{name: "name no longer reserved", old: `reserved "old";`, now: "", want: "name old is no longer reserved",
			before: reserve},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old := text
			if tt.before != nil {
				old = tt.before(text)
			}
			now := old
			if tt.old != "" {
				olds, news := strings.Split(tt.old, "|"), strings.Split(tt.now, "|")
				for i, o := range olds {
					if !strings.Contains(now, o) && i == 0 {
						t.Fatalf("the contract has no %q", o)
					}
					now = strings.ReplaceAll(now, o, news[i])
				}
				for _, more := range news[len(olds):] {
					now += "\n" + more
				}
			}
			got := breaks(fileProto(compileText(t, old)), fileProto(compileText(t, now)))
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("a change that may be is refused: %q", got)
			case tt.want != "" && !slices.ContainsFunc(got, func(c string) bool { return strings.Contains(c, tt.want) }):
				t.Errorf("complaints %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("syntax", func(t *testing.T) {
		a, b := fileProto(compileText(t, "")), fileProto(compileText(t, ""))
		b.Syntax = proto.String("proto2")
		if got := breaks(a, b); len(got) != 1 || !strings.Contains(got[0], "syntax") {
			t.Errorf("complaints %q", got)
		}
	})
}
