package sample_test

import (
	"flag"
	"os"
	"testing"

	"github.com/bufbuild/protocompile"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"agentstream/protocols/sample"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write sample.binpb")

// TestService: what is mounted is what sample.proto declares.
func TestService(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{})}
	files, err := compiler.Compile(t.Context(), "sample.proto")
	if err != nil {
		t.Fatal(err)
	}
	wrappers := protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)
	want := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{wrappers,
		protodesc.ToFileDescriptorProto(files[0])}}
	if *update {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		if err := os.WriteFile("sample.binpb", b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(sample.Protocol().Dialect.Info().Files[0], got); err != nil || !proto.Equal(got, want) {
		t.Errorf("sample.binpb is not sample.proto (go test -update writes it): %v", err)
	}
}
