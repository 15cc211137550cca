package sample_test

import (
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"testing"

	"github.com/bufbuild/protocompile"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/edge/dialect/dialecttest/sample"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSample: the sample is what every dialect is.
func TestSample(t *testing.T) {
	only := func(kind string) url.Values { return url.Values{"only": {kind}} }
	dialecttest.Suite{
		Dialect: sample.Dialect{},
		Streams: []dialect.Stream{sample.Protocol().Conversations[0].Stream},
		Inputs: map[string]dialect.Input{
			"all":       {Stream: "feed"},
			"sums":      {Stream: "feed.ws", Query: only("sum")},
			"types":     {Stream: "feed", Query: only("type")},
			"newest":    {Stream: "feed", Query: url.Values{"newest": {""}}},
			"to a turn": {Stream: "ask"},
			"posted":    {Stream: "look", Body: []byte(`{"Run":"run_suite","Only":"sum"}`)},
			"talk":      {Stream: "talk", Body: []byte(`{"ID":"a"}`)},
			"filtered":  {Stream: "talk", Body: []byte(`{"Types":["text.delta"]}`)},
		},
		Of: func(in *dialect.Input, run string) {
			if in.Path["run"] = run; in.Body != nil {
				in.Body = with(in.Body, "Run", run)
			}
		},
		Behind: func(in *dialect.Input, token string) {
			switch in.Header.Set("Last-Event-ID", token); {
			case in.Stream == "talk":
				in.Body = with(in.Body, "After", json.Number(token))
				in.Header.Del("Last-Event-ID")
			case in.Body != nil:
				in.Body = with(in.Body, "Last", token)
			}
		},
		State: 4 << 10,
	}.Run(t)
}

// with sets a field of an object.
func with(body []byte, name string, value any) []byte {
	m := map[string]any{}
	_ = json.Unmarshal(body, &m) // nothing is an empty object
	m[name] = value
	b, _ := json.Marshal(m)
	return b
}

var update = flag.Bool("update", false, "write sample.binpb")

// TestService: what is mounted is what sample.proto declares.
func TestService(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{})}
	files, err := compiler.Compile(t.Context(), "sample.proto")
	if err != nil {
		t.Fatal(err)
	}
	wrappers := protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)
	want := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{wrappers, protodesc.ToFileDescriptorProto(files[0])}}
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
