package runtimev1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

var (
	update   = flag.Bool("update", false, "write what is generated")
	baseline = flag.Bool("baseline", false, "take the contract as it is for the one that must not be broken")
)

const folder = "nimi/runtime/v1/"

// compile returns the contract's files.
func compile(t *testing.T) []protoreflect.FileDescriptor {
	t.Helper()
	names, err := filepath.Glob("*.proto")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	for i := range names {
		names[i] = folder + names[i]
	}
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: func(name string) (io.ReadCloser, error) {
			return os.Open(strings.TrimPrefix(name, folder))
		}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(context.Background(), names...)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]protoreflect.FileDescriptor, len(files))
	for i, f := range files {
		out[i] = f
	}
	return out
}

// request is what protoc would hand to protoc-gen-go: each file behind those that it imports.
func request(files []protoreflect.FileDescriptor) *pluginpb.CodeGeneratorRequest {
	req := &pluginpb.CodeGeneratorRequest{Parameter: proto.String("module=agentstream")}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		req.ProtoFile = append(req.ProtoFile, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
		req.FileToGenerate = append(req.FileToGenerate, f.Path())
	}
	return req
}

// TestGeneratedIsTheContract generates the Go files again.
func TestGeneratedIsTheContract(t *testing.T) {
	in, err := proto.Marshal(request(compile(t)))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "google.golang.org/protobuf/cmd/protoc-gen-go")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	res := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(out, res); err != nil || res.Error != nil {
		t.Fatal(err, res.GetError())
	}
	want := map[string]bool{}
	for _, f := range res.File {
		name := filepath.Base(f.GetName())
		want[name] = true
		if *update {
			if err := os.WriteFile(name, []byte(f.GetContent()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := os.ReadFile(name); err != nil || string(b) != f.GetContent() {
			t.Errorf("%s is not what the contract says (go test -update writes it): %v", name, err)
		}
	}
	have, _ := filepath.Glob("*.pb.go") // the pattern is right
	for _, name := range have {
		if !want[name] {
			t.Errorf("%s is of no file of the contract", name)
		}
	}
}

// facts are what clients have compiled in, one line each.
func facts(files []protoreflect.FileDescriptor) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		p := protodesc.ToFileDescriptorProto(f)
		for _, m := range p.MessageType {
			for _, fd := range m.Field {
				oneof := ""
				if fd.OneofIndex != nil {
					oneof = " in " + m.OneofDecl[fd.GetOneofIndex()].GetName()
				}
				out[fmt.Sprintf("%s/%d", m.GetName(), fd.GetNumber())] = strings.Join([]string{fd.GetName(),
					fd.GetLabel().String(), kind(fd), oneof}, " ")
			}
		}
		for _, e := range p.EnumType {
			for _, v := range e.Value {
				out[e.GetName()+"/"+v.GetName()] = fmt.Sprint(v.GetNumber())
			}
		}
		for _, s := range p.Service {
			for _, m := range s.Method {
				out[s.GetName()+"/"+m.GetName()] = fmt.Sprintf("%s %s %v", m.GetInputType(), m.GetOutputType(),
					m.GetServerStreaming())
			}
		}
	}
	return out
}

func kind(fd *descriptorpb.FieldDescriptorProto) string {
	if fd.GetTypeName() != "" {
		return fd.GetTypeName()
	}
	return fd.GetType().String()
}

// TestContractBreaksNobody compares numbers, names and types with those that clients were built with.
func TestContractBreaksNobody(t *testing.T) {
	now := facts(compile(t))
	if *baseline {
		b, err := json.MarshalIndent(now, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("baseline.json", append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("baseline.json")
	if err != nil {
		t.Fatal(err)
	}
	old := map[string]string{}
	if err := json.Unmarshal(b, &old); err != nil || len(old) < 700 {
		t.Fatalf("%d facts, %v", len(old), err)
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if now[name] != old[name] {
			t.Errorf("%s is now %q, was %q", name, now[name], old[name])
		}
	}
}

// TestReasonsAreNames holds that names and numbers of reasons are those that statuses and frames name.
func TestReasonsAreNames(t *testing.T) {
	for name, n := range map[string]runtimev1.ReasonCode{
		"AI_PROVIDER_TIMEOUT": 394, "AI_STREAM_BROKEN": 208, "AI_MODEL_NOT_FOUND": 200, "APP_SCOPE_FORBIDDEN": 503,
		"WF_TASK_NOT_FOUND": 443,
	} {
		if n.String() != name {
			t.Errorf("%d is %s, not %s", n, n, name)
		}
	}
}
